"""The SQL of finding and removing what is old, a bounded part at a time."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.core.partitions import lock_denied
from app.counts.store import lock_links
from app.counts.tables import Count, CountCorrection
from app.forecasts.tables import Forecast
from app.keys.tables import AuditEntry
from app.links.tables import Link
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
