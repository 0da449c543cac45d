"""Queries of retrain runs, and their figures for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Update, case, func, or_, select, update
from sqlalchemy.orm import Session

from app.core.database import in_values, is_sqlite
from app.links.queries import LINK_INFO, LinkInfo
from app.links.tables import Link
from app.training.tables import RetrainLink, RetrainRun

OPEN_LINK = ("waiting", "training")
LOST_SECONDS = 10.0  # without a heartbeat, after which another worker may claim a run
REQUESTS_LOCK = 7_240_601  # a number of our own among PostgreSQL's advisory locks


def lock_requests(session: Session) -> None:
    """Lock requests for runs, so that the next one sees what this one takes; SQLite has only one writer anyway."""
    if not is_sqlite(session):
        session.execute(select(func.pg_advisory_xact_lock(REQUESTS_LOCK)))


def open_links(session: Session, link_keys: Sequence[int]) -> dict[int, int]:
    """Return the runs of those of the links that are open in one, by link."""
    query = select(RetrainLink.link_key, RetrainLink.run_id).where(RetrainLink.state.in_(OPEN_LINK))
    return dict(session.execute(query.where(in_values(RetrainLink.link_key, link_keys))).all())


def run_with(session: Session, run_id: int) -> RetrainRun | None:
    """Return a run as it is now."""
    return session.get(RetrainRun, run_id, populate_existing=True)


def runs_before(session: Session, cursor: int | None, limit: int) -> list[RetrainRun]:
    """Return runs, the newest first."""
    query = select(RetrainRun).order_by(RetrainRun.id.desc()).limit(limit)
    if cursor is not None:
        query = query.where(RetrainRun.id < cursor)
    return list(session.scalars(query))


def tally(session: Session, run_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Count the links of runs by state."""
    query = select(RetrainLink.run_id, RetrainLink.state, func.count()).where(RetrainLink.run_id.in_(run_ids))
    found: dict[int, dict[str, int]] = {}
    for run_id, state, n in session.execute(query.group_by(RetrainLink.run_id, RetrainLink.state)):
        found.setdefault(run_id, {})[state] = n
    return found


def run_links(session: Session, run_id: int) -> list[tuple[RetrainLink, str]]:
    """Return the links of a run with their ids, by id."""
    query = select(RetrainLink, Link.link_id).join(Link, Link.link_key == RetrainLink.link_key)
    rows = session.execute(query.where(RetrainLink.run_id == run_id).order_by(Link.link_id))
    return [(row, link_id) for row, link_id in rows]


def waiting_links(session: Session, run_id: int) -> list[LinkInfo]:
    """Return the links of a run that are still to be trained, by id."""
    query = LINK_INFO.join(RetrainLink, RetrainLink.link_key == Link.link_key).order_by(Link.link_id)
    query = query.where(RetrainLink.run_id == run_id, RetrainLink.state.in_(OPEN_LINK))
    return [LinkInfo(*row) for row in session.execute(query)]


def read_heartbeats(session: Session) -> dict[int, tuple[str | None, datetime | None]]:
    """Return the running runs, with their workers and latest heartbeats."""
    query = select(RetrainRun.id, RetrainRun.worker, RetrainRun.heartbeat_at).where(RetrainRun.state == "running")
    return {run_id: (worker, heartbeat) for run_id, worker, heartbeat in session.execute(query)}


def claim_run(session: Session, worker: str, now: datetime, silent: Sequence[int] = ()) -> RetrainRun | None:
    """Claim the oldest run that is queued, whose worker is dead, or that is this worker's own; None if none is.

    A worker is dead if its heartbeat is too old, or its run among those found ``silent``. A worker claims runs only
    while it executes none, so a run of its own was left when the database was unreachable. Of several workers that try
    at once one succeeds, because the update has the expected state as its condition.
    """
    lost = now - timedelta(seconds=LOST_SECONDS)
    expired = or_(RetrainRun.heartbeat_at < lost, RetrainRun.worker == worker, RetrainRun.id.in_(silent))
    free = or_(RetrainRun.state == "queued", (RetrainRun.state == "running") & expired)
    query = select(RetrainRun.id, RetrainRun.worker).where(free).order_by(RetrainRun.id)
    for run_id, before in session.execute(query).all():
        claim = update(RetrainRun).where(RetrainRun.id == run_id, free, RetrainRun.worker.is_not_distinct_from(before))
        started_at = func.coalesce(RetrainRun.started_at, now)
        # The detail is removed because what another worker waited for does not concern this one.
        values = {"state": "running", "worker": worker, "heartbeat_at": now, "detail": None, "stage": None}
        if _update(session, claim.values(started_at=started_at, **values)) == 1:
            return run_with(session, run_id)
    return None


def renew_lease(session: Session, run_id: int, worker: str, now: datetime) -> bool:
    """Renew a worker's lease on a run; return False if another worker has claimed the run, or it is over."""
    run = update(RetrainRun).where(RetrainRun.id == run_id, RetrainRun.worker == worker, RetrainRun.state == "running")
    return _update(session, run.values(heartbeat_at=now)) == 1


def is_cancelled(session: Session, run_id: int) -> bool:
    """Return whether the cancellation of a run was requested."""
    return bool(session.scalar(select(RetrainRun.cancel_requested).where(RetrainRun.id == run_id)))


def set_detail(session: Session, run_id: int, detail: str | None) -> None:
    """Store a note on a run as a whole; None removes it."""
    _update(session, update(RetrainRun).where(RetrainRun.id == run_id).values(detail=detail))


def set_stage(session: Session, run_id: int, name: str, share: float | None) -> None:
    """Store the stage that a run is in since its first heartbeat with it, and the share of it that is done."""
    began = case((RetrainRun.stage == name, RetrainRun.stage_started_at), else_=RetrainRun.heartbeat_at)
    run = update(RetrainRun).where(RetrainRun.id == run_id)
    _update(session, run.values(stage=name, stage_share=share, stage_started_at=began))


def set_link(session: Session, run_id: int, link_key: int, **values: object) -> None:
    """Store the state of a link of a run."""
    link = update(RetrainLink).where(RetrainLink.run_id == run_id, RetrainLink.link_key == link_key)
    _update(session, link.values(**values))


def is_open(session: Session, run_id: int, link_key: int) -> bool:
    """Return whether a link of a run is still to be trained and registered."""
    query = select(RetrainLink.state).where(RetrainLink.run_id == run_id, RetrainLink.link_key == link_key)
    return session.scalar(query) in OPEN_LINK


def release_run(session: Session, run_id: int) -> None:
    """Release a run with the links that are left, so that the next worker claims it."""
    begun = update(RetrainLink).where(RetrainLink.run_id == run_id, RetrainLink.state == "training")
    _update(session, begun.values(state="waiting", started_at=None))
    run = update(RetrainRun).where(RetrainRun.id == run_id)
    _update(session, run.values(state="queued", worker=None, heartbeat_at=None, detail=None))


def close_links(session: Session, run_id: int, state: str, reason: str, now: datetime) -> None:
    """End what is still open in a run."""
    links = update(RetrainLink).where(RetrainLink.run_id == run_id, RetrainLink.state.in_(OPEN_LINK))
    _update(session, links.values(state=state, outcome=state, reason=reason, finished_at=now))


def _update(session: Session, statement: Update) -> int:
    """Execute an update without changing objects of the session; return the number of rows."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    return int(result.rowcount)  # type: ignore[attr-defined]


OUTCOMES = ("activated", "refused", "profile", "failed", "cancelled")
ENDED = ("succeeded", "failed", "cancelled")
LINKS_OF = timedelta(days=7)


class RetrainFigures(NamedTuple):
    """Runs by state, the links of recent runs by outcome, and the times that show whether runs make progress."""

    runs: dict[str, int]
    links: dict[str, int]
    queued_since: datetime | None  # of the oldest run that is queued
    heartbeat: datetime | None  # the oldest of the running runs
    ended: dict[str, datetime]  # when a run last ended in each state


def retrain_figures(session: Session, now: datetime) -> RetrainFigures:
    """Sum up all runs on record, and the links of those that ended in the last week."""
    query = select(
        RetrainRun.state,
        func.count().label("n"),
        func.min(RetrainRun.requested_at).label("requested"),
        func.min(RetrainRun.heartbeat_at).label("heartbeat"),
        func.max(RetrainRun.finished_at).label("finished"),
    ).group_by(RetrainRun.state)
    found = {row.state: row for row in session.execute(query)}
    recent = select(RetrainRun.id).where(RetrainRun.finished_at >= now - LINKS_OF)
    links = select(RetrainLink.outcome, func.count()).where(RetrainLink.run_id.in_(recent))
    return RetrainFigures(
        runs={state: row.n for state, row in found.items()},
        links={outcome: n for outcome, n in session.execute(links.group_by(RetrainLink.outcome)) if outcome},
        queued_since=found["queued"].requested if "queued" in found else None,
        heartbeat=found["running"].heartbeat if "running" in found else None,
        ended={state: found[state].finished for state in ENDED if state in found and found[state].finished},
    )
