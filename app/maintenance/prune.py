"""Remove old counts and records in small transactions, while the service runs, and compute how many days to keep."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Engine, and_, delete, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.core.database import Table, reading, writing
from app.core.partitions import drop_month, empty_months, lock_denied, old_months
from app.core.times import SECONDS_A_DAY
from app.counts.queries import lock_links, newest_slot_end, newest_slots
from app.counts.tables import Count, CountCorrection
from app.forecasts.profile_fallback import DAYS as PROFILE_DAYS
from app.forecasts.tables import Forecast
from app.keys.tables import AuditEntry
from app.links.tables import Link
from app.registry.tables import ModelVersion
from app.settings import ClockKind, Settings
from app.training.queries import ENDED
from app.training.request import DEFAULT_DAYS as RETRAIN_DAYS
from app.training.request import SCHEDULE, TRIGGER
from app.training.tables import RetrainLink, RetrainRun

BySlot = type[Count] | type[CountCorrection] | type[Forecast]
Removed = Callable[[str, int], None]

BATCH = 5_000  # rows in one transaction: some 20 ms, in which others wait
RUNS_AT_ONCE = 10  # each may have thousands of links
LEAST_PAUSE = 0.01  # seconds between two transactions
BY_SLOT = (Forecast, CountCorrection, Count)  # counts last: an interruption keeps what the rest was made from
EMPTY_MONTHS = "empty_months"
WEEK = 8  # days that the same slot of last week may lie back, on a week with a change of clocks


class Cutoffs(NamedTuple):
    """Moments before which rows are old; None keeps all of them."""

    slots: int | None  # Unix seconds
    records: datetime | None


def old_before(session: Session, settings: Settings, days: int | None, record_days: int | None) -> Cutoffs:
    """Return the moments some days ago: for slots by the service's clock, which may be the feed's, else by the wall."""
    slots = None if days is None else int(service_now(session, settings).timestamp()) - days * SECONDS_A_DAY
    return Cutoffs(slots, None if record_days is None else datetime.now(UTC) - timedelta(days=record_days))


def service_now(session: Session, settings: Settings) -> datetime:
    """Return now by the service's own clock; before the first count of a feed, by the wall."""
    newest = newest_slot_end(session) if settings.clock == ClockKind.FEED else None
    return datetime.now(UTC) if newest is None else datetime.fromtimestamp(newest, UTC)


class NeededDays(NamedTuple):
    """Days of history that are needed, and for what."""

    days: int
    by: str


def needed_counts(session: Session, settings: Settings) -> NeededDays:
    """Return how many days of counts are read: the most that forecasts, retraining and its trigger need."""
    window = -(-settings.retrain_trigger_window_hours // 24)
    return max(
        NeededDays(RETRAIN_DAYS, "retraining reads so many days by default"),
        NeededDays(PROFILE_DAYS, "the profile is learnt from so many days"),
        NeededDays(window + WEEK, "the retrain trigger measures accuracy over so many days, with the week before"),
        NeededDays(_days_of_lags(session), "the lag window of an active model reaches back so many days"),
        NeededDays(_days_of_runs(session), "a retrain run that is queued or running reads so many days"),
    )


def needed_records(settings: Settings) -> NeededDays:
    """Return how many days of finished retrain runs are read."""
    days = -(-settings.retrain_trigger_cool_down_hours // 24)
    return NeededDays(days, "the retrain trigger waits for so many days after a run")


def _days_of_lags(session: Session) -> int:
    query = select(Link.slot_minutes, ModelVersion.about[("plan", "lags")]).where(ModelVersion.state == "active")
    rows = session.execute(query.join(Link, Link.link_key == ModelVersion.link_key))
    return max((-(-minutes * _longest_lag(lags) // 1440) + 1 for minutes, lags in rows), default=0)


def _longest_lag(lags: Any) -> int:
    """Return the longest of lags that are listed, or their number."""
    if isinstance(lags, list):
        return max((_longest_lag(lag) for lag in lags), default=0)
    return int(lags) if isinstance(lags, int | float) else 0


def _days_of_runs(session: Session) -> int:
    runs = session.scalars(select(RetrainRun.parameters).where(RetrainRun.state.not_in(ENDED)))
    return max((int(parameters.get("days") or 0) for parameters in runs), default=0)


def count_old(session: Session, old: Cutoffs) -> dict[str, int]:
    """Count the rows that would be removed, by table."""

    def count(table: type[Table], condition: ColumnElement[bool]) -> int:
        return session.execute(select(func.count()).select_from(table).where(condition)).scalar_one()

    found = {}
    if old.slots is not None:
        found = {table.__tablename__: count(table, table.slot_start < old.slots) for table in BY_SLOT}
    if old.records is not None:
        runs = _old_runs(session, old.records)
        found["audit"] = count(AuditEntry, _old_audit(old.records))
        found["retrain_runs"] = count(RetrainRun, runs)
        found["retrain_links"] = count(RetrainLink, RetrainLink.run_id.in_(select(RetrainRun.id).where(runs)))
    return found


def prune(engine: Engine, old: Cutoffs, removed: Removed) -> None:
    """Remove what is old; each part is committed, and reported to ``removed`` with its table, by itself."""
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
        with writing(engine):  # notifies once more, because of links that fell silent since it began
            pass


def all_keys(session: Session) -> list[int]:
    """Return the keys of all links, in the order in which storing counts locks them."""
    return list(session.scalars(select(Link.link_key).order_by(Link.link_key)))


def remove_slots(session: Session, table: BySlot, keys: deque[int], before: int, most: int) -> int:
    """Remove about ``most`` rows of slots before a moment, link by link; links that have none left leave ``keys``."""
    removed = 0
    while keys and removed < most:
        end = _end_of_part(session, table, keys[0], before, most - removed)
        if end is not None:
            if not _lock(session, keys[0], wait=not removed):
                break
            old = delete(table).where(table.link_key == keys[0], table.slot_start < end)
            removed += session.execute(old.execution_options(synchronize_session=False)).rowcount  # type: ignore[attr-defined]
        if end is None or end >= before:
            keys.popleft()
    return removed


def _lock(session: Session, key: int, *, wait: bool) -> bool:
    """Lock a link; return False if another transaction holds it.

    A transaction that holds links does not wait for more: an import may hold that one for long.
    """
    try:
        with session.begin_nested():
            lock_links(session, [key], wait=wait)
    except OperationalError as problem:
        if wait or not lock_denied(problem):
            raise
        return False
    return True


def _end_of_part(session: Session, table: BySlot, key: int, before: int, most: int) -> int | None:
    """Find the slot before which a link has some ``most`` rows; None when nothing of it is old."""
    old = select(table.slot_start).where(table.link_key == key, table.slot_start < before).order_by(table.slot_start)
    oldest = session.scalar(old.limit(1))
    if oldest is None:
        return None
    further = session.scalar(old.offset(most).limit(1))
    return before if further is None else max(further, oldest + 1)


def _prune_records(engine: Engine, before: datetime, removed: Removed) -> None:
    for remove in (_remove_audit, _remove_runs):
        while True:
            began = time.monotonic()
            with writing(engine, served=False) as session:
                gone = remove(session, before)
            if not gone.total():
                break
            for name, n in gone.items():
                removed(name, n)
            _let_others_write(began)


def _remove_audit(session: Session, before: datetime) -> Counter[str]:
    ids = session.scalars(select(AuditEntry.id).where(_old_audit(before)).order_by(AuditEntry.id).limit(BATCH)).all()
    if ids:
        session.execute(delete(AuditEntry).where(AuditEntry.id.between(ids[0], ids[-1]), AuditEntry.at < before))
    return Counter(audit=len(ids))


def _remove_runs(session: Session, before: datetime) -> Counter[str]:
    """Remove a few old runs with their links; return how many of each."""
    old = select(RetrainRun.id).where(_old_runs(session, before)).order_by(RetrainRun.id)
    ids = session.scalars(old.limit(RUNS_AT_ONCE)).all()
    links = session.execute(delete(RetrainLink).where(RetrainLink.run_id.in_(ids))).rowcount  # type: ignore[attr-defined]
    session.execute(delete(RetrainRun).where(RetrainRun.id.in_(ids)))
    return Counter(retrain_runs=len(ids), retrain_links=links)


def _old_audit(before: datetime) -> ColumnElement[bool]:
    """Return the condition for old entries; the newest stays, because its number must not be given again."""
    return and_(AuditEntry.at < before, AuditEntry.id < select(func.max(AuditEntry.id)).scalar_subquery())


def _old_runs(session: Session, before: datetime) -> ColumnElement[bool]:
    """Return the condition for old runs that are over.

    The newest stays, because its number must not be given again, and so does the newest that the schedule
    and the trigger made: they show what is done already.
    """
    kept = [session.scalar(select(func.max(RetrainRun.id))) or 0]
    for kind in (SCHEDULE, TRIGGER):
        newest = select(RetrainRun.id).where(RetrainRun.occasion.startswith(f"{kind} "))
        kept += session.scalars(newest.order_by(RetrainRun.occasion.desc()).limit(1))
    return and_(RetrainRun.state.in_(ENDED), RetrainRun.finished_at < before, RetrainRun.id.not_in(kept))


def _let_others_write(began: float) -> None:
    # Writers that wait for SQLite's lock poll it; without a pause they would hardly ever get it.
    time.sleep(max(LEAST_PAUSE, time.monotonic() - began))
