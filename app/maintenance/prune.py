"""Delete old counts and records in small transactions, while the service runs."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import reading, writing
from app.counts.queries import newest_slot_end, newest_slots
from app.counts.tables import Count, CountCorrection
from app.forecasts.tables import Forecast
from app.maintenance.old_months import drop_month, empty_months, old_months
from app.maintenance.old_rows import (
    all_keys,
    count_audit,
    count_runs,
    count_slots,
    remove_audit,
    remove_runs,
    remove_slots,
)
from app.settings import ClockKind, Settings

BATCH = 5_000  # rows in one transaction: some 20 ms, in which others wait
LEAST_PAUSE = 0.01  # seconds between two
BY_SLOT = (Forecast, CountCorrection, Count)  # counts last: whoever is interrupted keeps what the rest was made from

EMPTY_MONTHS = "empty_months"

Removed = Callable[[str, int], None]


class Old(NamedTuple):
    """Moments before which things are old; None keeps all of them."""

    slots: int | None  # Unix seconds
    records: datetime | None


def old_before(session: Session, settings: Settings, days: int | None, record_days: int | None) -> Old:
    """Reckon from now: for slots by the service's own clock, which may be that of the feed; for records by the wall."""
    slots = None if days is None else int(service_now(session, settings).timestamp()) - days * 86_400
    return Old(slots, None if record_days is None else datetime.now(UTC) - timedelta(days=record_days))


def service_now(session: Session, settings: Settings) -> datetime:
    """Return now by the service's own clock; before the first count of a feed, by the wall."""
    newest = newest_slot_end(session) if settings.clock == ClockKind.FEED else None
    return datetime.now(UTC) if newest is None else datetime.fromtimestamp(newest, UTC)


def count_old(session: Session, old: Old) -> dict[str, int]:
    """Count what would go, by table."""
    found = {}
    if old.slots is not None:
        found = {table.__tablename__: count_slots(session, table, old.slots) for table in BY_SLOT}
    if old.records is not None:
        runs, links = count_runs(session, old.records)
        found |= {"audit": count_audit(session, old.records), "retrain_runs": runs, "retrain_links": links}
    return found


def prune(engine: Engine, old: Old, removed: Removed) -> None:
    """Remove what is old; each part is committed, and told of, for itself."""
    if old.slots is not None:
        _prune_slots(engine, old.slots, removed)
    if old.records is not None:
        _prune_records(engine, old.records, removed)


def _prune_slots(engine: Engine, before: int, removed: Removed) -> None:
    for name, month in empty_months(engine):
        began = time.monotonic()
        dropped = drop_month(engine, name, month, served=False, only_empty=True) is not None
        removed(EMPTY_MONTHS, int(dropped))
        _let_others_write(began)
    with reading(engine) as session:
        keys = all_keys(session)
        newest = newest_slots(session)
    # Only a link that loses its newest count is answered differently afterwards.
    fallen_silent = {key for key, slot in newest.items() if slot < before}
    try:
        for table in BY_SLOT:
            name = table.__tablename__
            for month in old_months(engine, name, before):
                gone = drop_month(engine, name, month, served=table is Count and bool(fallen_silent))
                removed(name, gone or 0)  # one that could not be dropped is emptied below
            left = deque(keys)
            while left:
                began = time.monotonic()
                served = table is Count and not fallen_silent.isdisjoint(left)
                with writing(engine, served=served) as session:
                    gone = remove_slots(session, table, left, before, BATCH)
                removed(name, gone)
                _let_others_write(began)
    finally:
        with writing(engine):  # says once more that something changed, for links that fell silent since it began
            pass


def _prune_records(engine: Engine, before: datetime, removed: Removed) -> None:
    def audit(session: Session) -> Counter[str]:
        return Counter(audit=remove_audit(session, before, BATCH))

    def runs(session: Session) -> Counter[str]:
        n, links = remove_runs(session, before)
        return Counter(retrain_runs=n, retrain_links=links)

    for remove in (audit, runs):
        while True:
            began = time.monotonic()
            with writing(engine, served=False) as session:
                gone = remove(session)
            for name, n in gone.items():
                removed(name, n)
            if not gone.total():
                break
            _let_others_write(began)


def _let_others_write(began: float) -> None:
    # Whoever waits for SQLite's only writer looks again and again; without a pause it would never find a gap.
    time.sleep(max(LEAST_PAUSE, time.monotonic() - began))
