"""How retraining goes, from the tables: workers listen nowhere, and what they counted would end with them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.training.tables import RetrainLink, RetrainRun

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
