"""Retrain runs in the database, and the figures that metrics show of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import case, func, or_, select, update
from sqlalchemy.orm import Session

from app.core.database import in_values
from app.links.queries import LINK_INFO, LinkInfo
from app.links.tables import Link
from app.training.tables import RetrainLink, RetrainRun

OPEN_LINK = ("waiting", "training")
REQUESTS_LOCK = 7_240_601  # a number of our own among PostgreSQL's advisory locks


def lock_requests(session: Session) -> None:
    """Lock requests for runs, so that the next one sees what this one takes; SQLite has only one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(REQUESTS_LOCK)))


def open_links(session: Session, link_keys: Sequence[int]) -> dict[int, int]:
    """Return the links that are open in a run, and which."""
    question = select(RetrainLink.link_key, RetrainLink.run_id).where(RetrainLink.state.in_(OPEN_LINK))
    return dict(session.execute(question.where(in_values(RetrainLink.link_key, link_keys))).all())


def run_with(session: Session, run_id: int) -> RetrainRun | None:
    """Return a run as it is now."""
    return session.get(RetrainRun, run_id, populate_existing=True)


def runs_before(session: Session, cursor: int | None, limit: int) -> list[RetrainRun]:
    """Return runs, the newest first."""
    question = select(RetrainRun).order_by(RetrainRun.id.desc()).limit(limit)
    if cursor is not None:
        question = question.where(RetrainRun.id < cursor)
    return list(session.scalars(question))


def tally(session: Session, run_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Count the links of runs by state."""
    question = select(RetrainLink.run_id, RetrainLink.state, func.count()).where(RetrainLink.run_id.in_(run_ids))
    found: dict[int, dict[str, int]] = {}
    for run_id, state, n in session.execute(question.group_by(RetrainLink.run_id, RetrainLink.state)):
        found.setdefault(run_id, {})[state] = n
    return found


def links_of(session: Session, run_id: int) -> list[tuple[RetrainLink, str]]:
    """Return the links of a run with their ids, by id."""
    question = select(RetrainLink, Link.link_id).join(Link, Link.link_key == RetrainLink.link_key)
    rows = session.execute(question.where(RetrainLink.run_id == run_id).order_by(Link.link_id))
    return [(row, link_id) for row, link_id in rows]


def waiting_links(session: Session, run_id: int) -> list[LinkInfo]:
    """Return the links of a run that are still to be trained, by id."""
    question = (
        LINK_INFO.join(RetrainLink, RetrainLink.link_key == Link.link_key)
        .where(RetrainLink.run_id == run_id, RetrainLink.state.in_(OPEN_LINK))
        .order_by(Link.link_id)
    )
    return [LinkInfo(*row) for row in session.execute(question)]


def beats(session: Session) -> dict[int, tuple[str | None, datetime | None]]:
    """Return the running runs, with their workers and latest heartbeats."""
    question = select(RetrainRun.id, RetrainRun.worker, RetrainRun.heartbeat_at).where(RetrainRun.state == "running")
    return {run_id: (worker, heartbeat) for run_id, worker, heartbeat in session.execute(question)}


def claim_run(
    session: Session, worker: str, now: datetime, lost_after: timedelta, silent: Sequence[int] = ()
) -> RetrainRun | None:
    """Take the oldest run that is queued, that has no living worker, or that is this worker's own; None if none is.

    A worker whose heartbeat is too old, or whose run is among those found ``silent``, does not live. One
    that asks for work carries nothing out: a run of its own was left when the database was away. Of
    several workers that try at once one succeeds: the update names the state it expects.
    """
    lost = now - lost_after
    unheard = or_(RetrainRun.heartbeat_at < lost, RetrainRun.worker == worker, RetrainRun.id.in_(silent))
    free = or_(RetrainRun.state == "queued", (RetrainRun.state == "running") & unheard)
    question = select(RetrainRun.id, RetrainRun.worker).where(free).order_by(RetrainRun.id)
    for run_id, before in session.execute(question).all():
        mine = (
            update(RetrainRun)
            .where(RetrainRun.id == run_id, free, RetrainRun.worker.is_not_distinct_from(before))
            .values(
                state="running",
                worker=worker,
                heartbeat_at=now,
                started_at=func.coalesce(RetrainRun.started_at, now),
                detail=None,  # what it waited for was another worker's concern
                stage=None,
            )
        )
        if session.execute(mine.execution_options(synchronize_session=False)).rowcount == 1:  # type: ignore[attr-defined]
            return run_with(session, run_id)
    return None


def renew_lease(session: Session, run_id: int, worker: str, now: datetime) -> bool:
    """Beat the heart of a run; False when it was given to somebody else meanwhile, or is over."""
    mine = update(RetrainRun).where(RetrainRun.id == run_id, RetrainRun.worker == worker, RetrainRun.state == "running")
    done = session.execute(mine.values(heartbeat_at=now).execution_options(synchronize_session=False))
    return bool(done.rowcount == 1)  # type: ignore[attr-defined]


def cancel_wanted(session: Session, run_id: int) -> bool:
    """Return whether somebody asked to stop a run."""
    return bool(session.execute(select(RetrainRun.cancel_requested).where(RetrainRun.id == run_id)).scalar())


def set_detail(session: Session, run_id: int, detail: str | None) -> None:
    """Note what is to be known of a run as a whole."""
    mine = update(RetrainRun).where(RetrainRun.id == run_id)
    session.execute(mine.values(detail=detail).execution_options(synchronize_session=False))


def set_stage(session: Session, run_id: int, name: str, share: float | None) -> None:
    """Store the stage that a run is in since its first heartbeat with it, and the share of it that is done."""
    began = case((RetrainRun.stage == name, RetrainRun.stage_started_at), else_=RetrainRun.heartbeat_at)
    mine = update(RetrainRun).where(RetrainRun.id == run_id)
    values = {"stage": name, "stage_share": share, "stage_started_at": began}
    session.execute(mine.values(**values).execution_options(synchronize_session=False))


def set_link(session: Session, run_id: int, link_key: int, **values: object) -> None:
    """Note what became of a link."""
    mine = update(RetrainLink).where(RetrainLink.run_id == run_id, RetrainLink.link_key == link_key)
    session.execute(mine.values(**values).execution_options(synchronize_session=False))


def is_open(session: Session, run_id: int, link_key: int) -> bool:
    """Return whether a link of a run is still to be settled."""
    question = select(RetrainLink.state).where(RetrainLink.run_id == run_id, RetrainLink.link_key == link_key)
    return session.scalar(question) in OPEN_LINK


def put_down(session: Session, run_id: int) -> None:
    """Release a run with the links that are left, so that the next worker claims it."""
    begun = update(RetrainLink).where(RetrainLink.run_id == run_id, RetrainLink.state == "training")
    session.execute(begun.values(state="waiting", started_at=None).execution_options(synchronize_session=False))
    mine = update(RetrainRun).where(RetrainRun.id == run_id)
    values = {"state": "queued", "worker": None, "heartbeat_at": None, "detail": None}
    session.execute(mine.values(**values).execution_options(synchronize_session=False))


def close_links(session: Session, run_id: int, state: str, reason: str, now: datetime) -> None:
    """End what is still open in a run."""
    mine = update(RetrainLink).where(RetrainLink.run_id == run_id, RetrainLink.state.in_(OPEN_LINK))
    values = {"state": state, "outcome": state, "reason": reason, "finished_at": now}
    session.execute(mine.values(**values).execution_options(synchronize_session=False))


OUTCOMES = ("activated", "refused", "profile", "failed", "cancelled")
ENDED = ("succeeded", "failed", "cancelled")
LINKS_OF = timedelta(days=7)


class RetrainFigures(NamedTuple):
    """Runs by state, the links of recent runs by outcome, and the moments that tell whether anything moves."""

    runs: dict[str, int]
    links: dict[str, int]
    queued_since: datetime | None  # of the oldest run that is queued
    heartbeat: datetime | None  # the oldest of the runs that are carried out
    ended: dict[str, datetime]  # when a run last ended in each state


def retrain_figures(session: Session, now: datetime) -> RetrainFigures:
    """Sum up all runs on record, and the links of those that ended in the last week."""
    question = select(
        RetrainRun.state,
        func.count().label("n"),
        func.min(RetrainRun.requested_at).label("requested"),
        func.min(RetrainRun.heartbeat_at).label("heartbeat"),
        func.max(RetrainRun.finished_at).label("finished"),
    ).group_by(RetrainRun.state)
    found = {row.state: row for row in session.execute(question)}
    recent = select(RetrainRun.id).where(RetrainRun.finished_at >= now - LINKS_OF)
    links = select(RetrainLink.outcome, func.count()).where(RetrainLink.run_id.in_(recent))
    return RetrainFigures(
        runs={state: row.n for state, row in found.items()},
        links={outcome: n for outcome, n in session.execute(links.group_by(RetrainLink.outcome)) if outcome},
        queued_since=found["queued"].requested if "queued" in found else None,
        heartbeat=found["running"].heartbeat if "running" in found else None,
        ended={state: found[state].finished for state in ENDED if state in found and found[state].finished},
    )
