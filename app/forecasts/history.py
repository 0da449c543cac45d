"""What was forecast, with what came, a page at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from app.core.slots import EPOCH
from app.core.times import SECONDS_A_DAY, instant_of, read_span
from app.counts.tables import QUALITIES
from app.forecasts.queries import PastForecast, newest_forecast, past_forecasts
from app.forecasts.schemas import PastForecastOut, PastForecasts
from app.links.queries import LinkInfo, link_or_404

CURSOR = r"^[0-9]{1,11}\.[0-9]{1,4}\.[0-9]{1,10}$"  # slot, horizon and version of the last one given


def read_history(
    session: Session,
    link_id: str,
    asked: tuple[datetime | None, datetime | None],
    only: tuple[int | None, int | None],
    limit: int,
    cursor: str | None,
) -> PastForecasts:
    """Return a page of a link's past forecasts; by default the day up to the newest slot forecast."""
    link = link_or_404(session, link_id)
    newest = newest_forecast(session, link.link_key)
    span = read_span(*asked, None if newest is None else newest + link.slot_seconds, SECONDS_A_DAY)
    if span is None:
        return PastForecasts(link_id=link_id, forecasts=[], next_cursor=None)
    after = tuple(int(part) for part in cursor.split(".")) if cursor else None
    found = past_forecasts(session, link.link_key, span, only, after, limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    return PastForecasts(
        link_id=link_id,
        forecasts=[_shown(link, one) for one in found[:limit]],
        next_cursor=None if last is None else f"{last.slot_start}.{last.horizon}.{last.model_version}",
    )


def _shown(link: LinkInfo, one: PastForecast) -> PastForecastOut:
    return PastForecastOut(
        slot_start=instant_of(one.slot_start),
        horizon=one.horizon,
        expected_count=one.expected,
        lower=one.lower,
        upper=one.upper,
        level=one.level,
        count=one.came,
        quality=None if one.quality is None else QUALITIES[one.quality],
        realised_error=None if one.came is None else one.expected - one.came,
        as_of_slot=instant_of(one.slot_start - one.horizon * link.slot_seconds),
        issued_at=EPOCH + timedelta(microseconds=one.issued_at),
        method=one.method,
        degraded_reason=one.degraded_reason,
        filled_lags=one.filled_lags,
        model_version=one.model_version or None,
    )
