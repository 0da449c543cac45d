"""Delete old counts and records in small transactions, while the service runs."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Engine, and_, delete, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.core.database import reading, writing
from app.core.partitions import lock_denied
from app.counts.queries import lock_links, newest_slot_end, newest_slots
from app.counts.tables import Count, CountCorrection
from app.forecasts.tables import Forecast
from app.keys.tables import AuditEntry
from app.links.tables import Link
from app.maintenance.old_months import drop_month, empty_months, old_months
from app.settings import ClockKind, Settings
from app.training.request import SCHEDULE, TRIGGER
from app.training.tables import RetrainLink, RetrainRun

BySlot = type[Count] | type[CountCorrection] | type[Forecast]

FINISHED = ("succeeded", "failed", "cancelled")
RUNS_AT_ONCE = 10  # each may have thousands of links


def all_keys(session: Session) -> list[int]:
    """Return the keys of all links, in the order in which whoever stores counts locks them."""
    return list(session.scalars(select(Link.link_key).order_by(Link.link_key)))


def count_slots(session: Session, table: BySlot, before: int) -> int:
    """Count the rows of slots that start before a moment, in Unix seconds."""
    return session.execute(select(func.count()).select_from(table).where(table.slot_start < before)).scalar_one()


def remove_slots(session: Session, table: BySlot, keys: deque[int], before: int, most: int) -> int:
    """Remove about ``most`` rows of slots before a moment, link by link; links that have none left leave ``keys``."""
    removed = 0
    while keys and removed < most:
        end = _end_of_part(session, table, keys[0], before, most - removed)
        if end is not None:
            if not _lock(session, keys[0], wait=not removed):
                break
            old = delete(table).where(table.link_key == keys[0], table.slot_start < end)
            gone = session.execute(old.execution_options(synchronize_session=False)).rowcount  # type: ignore[attr-defined]
            removed += gone
        if end is None or end >= before:
            keys.popleft()
    return removed


def _lock(session: Session, key: int, *, wait: bool) -> bool:
    """Lock a link; return False if another transaction holds it.

    Whoever holds links does not wait for more: an import may hold that one for long.
    """
    if wait:
        lock_links(session, [key])
        return True
    try:
        with session.begin_nested():
            lock_links(session, [key], wait=False)
    except OperationalError as problem:
        if not lock_denied(problem):
            raise
        return False
    return True


def _end_of_part(session: Session, table: BySlot, key: int, before: int, most: int) -> int | None:
    """Find the slot before which a link has some ``most`` rows; None when nothing of it is old."""
    old = select(table.slot_start).where(table.link_key == key, table.slot_start < before).order_by(table.slot_start)
    oldest = session.execute(old.limit(1)).scalar()
    if oldest is None:
        return None
    further = session.execute(old.offset(most).limit(1)).scalar()
    return before if further is None else max(further, oldest + 1)


def old_audit(before: datetime) -> ColumnElement[bool]:
    """Return the condition for old entries; the newest stays, because its number must not be given again."""
    return and_(AuditEntry.at < before, AuditEntry.id < select(func.max(AuditEntry.id)).scalar_subquery())


def old_runs(session: Session, before: datetime) -> ColumnElement[bool]:
    """Return the condition for old runs that are over.

    The newest stays, for its number must not be given again, and so does the newest that the schedule
    and the trigger made: by these they know what is done already.
    """
    kept = [session.execute(select(func.max(RetrainRun.id))).scalar() or 0]
    for kind in (SCHEDULE, TRIGGER):
        newest = select(RetrainRun.id).where(RetrainRun.occasion.startswith(f"{kind} "))
        kept += session.scalars(newest.order_by(RetrainRun.occasion.desc()).limit(1))
    return and_(RetrainRun.state.in_(FINISHED), RetrainRun.finished_at < before, RetrainRun.id.not_in(kept))


def count_audit(session: Session, before: datetime) -> int:
    """Count old entries of the audit."""
    return session.execute(select(func.count()).select_from(AuditEntry).where(old_audit(before))).scalar_one()


def count_runs(session: Session, before: datetime) -> tuple[int, int]:
    """Count old runs, and what became of their links."""
    old = old_runs(session, before)
    runs = session.execute(select(func.count()).select_from(RetrainRun).where(old)).scalar_one()
    links = select(func.count()).select_from(RetrainLink).join(RetrainRun, RetrainRun.id == RetrainLink.run_id)
    return runs, session.execute(links.where(old)).scalar_one()


def remove_audit(session: Session, before: datetime, most: int) -> int:
    """Remove up to ``most`` old entries of the audit."""
    ids = list(session.scalars(select(AuditEntry.id).where(old_audit(before)).order_by(AuditEntry.id).limit(most)))
    if ids:
        session.execute(delete(AuditEntry).where(AuditEntry.id.between(ids[0], ids[-1]), AuditEntry.at < before))
    return len(ids)


def remove_runs(session: Session, before: datetime) -> tuple[int, int]:
    """Remove a few old runs with what became of their links; say how many of each."""
    question = select(RetrainRun.id).where(old_runs(session, before)).order_by(RetrainRun.id)
    ids = list(session.scalars(question.limit(RUNS_AT_ONCE)))
    if not ids:
        return 0, 0
    links = session.execute(delete(RetrainLink).where(RetrainLink.run_id.in_(ids))).rowcount  # type: ignore[attr-defined]
    session.execute(delete(RetrainRun).where(RetrainRun.id.in_(ids)))
    return len(ids), links


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
    """Remove what is old; each part is committed, and reported, for itself."""
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
