"""Queries of webhooks and of the forecasts to send to them, and the waits after failed deliveries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate, count
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, text, update
from sqlalchemy.orm import Session, aliased

from app.core.database import is_sqlite
from app.core.errors import FieldError, NotFound
from app.counts.queries import SpanOf, recent_then_older
from app.events.tables import Webhook
from app.forecasts.issued_forecast import HORIZONS
from app.forecasts.tables import Forecast
from app.links.queries import ENSEMBLE
from app.links.tables import Link
from app.registry.queries import active_models

Marks = dict[int, tuple[int, int]]  # by link key, of its latest forecast: the slot it was made as of, the version

LONGEST_WAIT = 3600  # seconds
GIVE_UP_SECONDS = 3 * 86_400
JITTER = 0.25  # so that deliveries that failed together are not tried again together


def wait_seconds(failures: int) -> int:
    """Return the least wait after so many failures in a row: a second, doubling to an hour."""
    return min(LONGEST_WAIT, 1 << min(failures - 1, 12))


def wait_after(failures: int) -> timedelta:
    """Return a wait, up to a quarter longer than the least."""
    return timedelta(seconds=wait_seconds(failures) * random.uniform(1.0, 1.0 + JITTER))  # nosec B311 # no secret


def _most_failures() -> int:
    waited = accumulate(wait_seconds(n) for n in count(1))
    return next(n for n, seconds in enumerate(waited, start=1) if seconds >= GIVE_UP_SECONDS) + 1


MOST_FAILURES = _most_failures()  # in a row, and three days have passed since the first


def all_webhooks(session: Session) -> list[Webhook]:
    """Return every webhook, the oldest first."""
    return list(session.scalars(select(Webhook).order_by(Webhook.id)))


def webhook_or_404(session: Session, webhook_id: int) -> Webhook:
    """Return a webhook, or raise ``NotFound``."""
    row = session.get(Webhook, webhook_id)
    if row is None:
        errors = [FieldError("webhook_id", str(webhook_id), "must name a webhook")]
        raise NotFound(f"there is no webhook {webhook_id}", errors)
    return row


def due_webhooks(session: Session, now: datetime) -> list[Webhook]:
    """Return the webhooks that may be delivered to now."""
    query = select(Webhook).where(Webhook.failures < MOST_FAILURES)
    # No wait is so long: such a time was written before the clock was set back.
    beyond = now + timedelta(seconds=2 * LONGEST_WAIT)
    due = or_(Webhook.retry_at.is_(None), Webhook.retry_at <= now, Webhook.retry_at > beyond)
    return list(session.scalars(query.where(due)))


def webhooks_by_state(session: Session) -> dict[str, int]:
    """Return the number of webhooks that are ``ok``, ``failing`` and tried again, or ``given_up``."""
    found = {"ok": 0, "failing": 0, "given_up": 0}
    for failures in session.scalars(select(Webhook.failures)):
        found["ok" if not failures else "failing" if failures < MOST_FAILURES else "given_up"] += 1
    return found


def claim_webhook(session: Session, row: Webhook, until: datetime) -> bool:
    """Claim a webhook until a moment; return False if another process delivered, or claimed it, since it was read."""
    mine = update(Webhook).where(
        Webhook.id == row.id,
        Webhook.failures == row.failures,
        Webhook.retry_at.is_not_distinct_from(row.retry_at),
        Webhook.delivered_at.is_not_distinct_from(row.delivered_at),
    )
    done = session.execute(mine.values(retry_at=until).execution_options(synchronize_session=False))
    return bool(done.rowcount == 1)  # type: ignore[attr-defined]


def release_webhook(session: Session, webhook_id: int, until: datetime, **values: object) -> None:
    """Store the outcome of a delivery, unless the webhook was deleted or claimed by another process meanwhile."""
    mine = update(Webhook).where(Webhook.id == webhook_id, Webhook.retry_at == until)
    session.execute(mine.values(**values).execution_options(synchronize_session=False))


def wait_for_activations(session: Session) -> None:
    """Wait for activations that have a number and are not committed yet; a later number might be seen before them."""
    if not is_sqlite(session):  # SQLite has one writer, so numbers come in order
        session.execute(text("SET LOCAL lock_timeout = '2s'"))
        session.execute(text("LOCK TABLE activations IN SHARE MODE"))


def latest_forecasts(session: Session) -> Marks:
    """Return each link's latest stored forecast, by what forecasts the link now if that made one."""
    serving = {key: refs[-1].version for key, refs in active_models(session).items()}
    found: dict[int, tuple[bool, int, int, int]] = {}
    for key, end, minutes, version, issued_at, of_ensemble, choice in recent_then_older(session, _latest, None):
        has_ensemble = choice == ENSEMBLE
        is_served = of_ensemble == has_ensemble and (has_ensemble or serving.get(key, 0) == version)
        candidate = (is_served, issued_at, version, end - HORIZONS * 60 * minutes)
        found[key] = max(found.get(key, candidate), candidate)
    return {key: (as_of, version) for key, (_, _, version, as_of) in found.items()}


def _latest(session: Session, of: ColumnElement[bool], within: SpanOf) -> Sequence[Any]:
    # A maximum a link walks one step down the primary key; GROUP BY would walk through every forecast.
    past = aliased(Forecast)
    newest = select(func.max(past.slot_start)).where(past.link_key == Link.link_key, within(past.slot_start))
    latest = [Forecast.link_key == Link.link_key, Forecast.slot_start == newest.correlate(Link).scalar_subquery()]
    latest += [Forecast.horizon == HORIZONS, within(Forecast.slot_start)]
    # An outer join, or SQLite would begin with the forecasts: 130 ms for 1,000 links and two days, else 8.
    query = select(
        Link.link_key,
        Forecast.slot_start,
        Link.slot_minutes,
        Forecast.model_version,
        Forecast.issued_at,
        Forecast.experts.is_not(None),
        Link.choice,
    ).outerjoin(Forecast, and_(*latest))
    return session.execute(query.where(of)).all()
