"""Who does what a schedule asks for: one worker at a time, and each moment once."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from app.maintenance.tables import Upkeep

LOST = timedelta(minutes=5)  # of silence, after which another worker may take over


def is_due(session: Session, kind: str, moment: datetime, since: datetime) -> bool:
    """Tell whether a moment is still to be seen to; a schedule that is new is not behind with what came before it."""
    last = session.get(Upkeep, kind)
    if last is None:
        return moment > since
    return last.moment < moment or (last.moment == moment and last.finished_at is None)


def claim(session: Session, kind: str, moment: datetime, worker: str, now: datetime) -> bool:
    """Take a moment, unless it was seen to, or somebody is at it or at the one before.

    Two that claim the very first moment at once: one gets an ``IntegrityError``.
    """
    last = session.get(Upkeep, kind, with_for_update=True, populate_existing=True)
    values = {"moment": moment, "worker": worker, "started_at": now, "heartbeat_at": now}
    if last is None:
        session.add(Upkeep(kind=kind, **values))
        return True
    under_way = last.finished_at is None and last.heartbeat_at > now - LOST
    done = last.moment > moment or (last.moment == moment and last.finished_at is not None)
    if under_way or done:
        return False
    session.execute(
        update(Upkeep).where(Upkeep.kind == kind).values(**values, finished_at=None, figures=None, detail=None)
    )
    return True


def beat(session: Session, kind: str, worker: str, now: datetime) -> bool:
    """Say that it goes on; False when another worker took over."""
    mine = update(Upkeep).where(Upkeep.kind == kind, Upkeep.worker == worker, Upkeep.finished_at.is_(None))
    return bool(session.execute(mine.values(heartbeat_at=now)).rowcount)  # type: ignore[attr-defined]


def finish(
    session: Session, kind: str, worker: str, now: datetime, figures: dict[str, int], detail: str | None
) -> None:
    """Note that it is over, and what came of it."""
    mine = update(Upkeep).where(Upkeep.kind == kind, Upkeep.worker == worker, Upkeep.finished_at.is_(None))
    session.execute(mine.values(finished_at=now, heartbeat_at=now, figures=figures, detail=detail))
