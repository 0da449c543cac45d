"""What the schedule and the trigger ask the database."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from app.registry.tables import ShelvedModel
from app.training.queries import OPEN_LINK
from app.training.tables import RetrainLink, RetrainRun

HELD_OUT_RMSE = ("held_out", "candidate", "rmse", "value")


class Promise(NamedTuple):
    """How good a version was on held-out days."""

    version: int
    rmse: float


def occasion_made(session: Session, occasion: str) -> bool:
    """Tell whether an occasion has its run."""
    return session.scalar(select(RetrainRun.id).where(RetrainRun.occasion == occasion)) is not None


def occasion_began(session: Session, kind: str) -> bool:
    """Tell whether any occasion of a kind has a run."""
    question = select(RetrainRun.id).where(RetrainRun.occasion.startswith(f"{kind} ", autoescape=True)).limit(1)
    return session.scalar(question) is not None


def promises_of_active(session: Session) -> dict[int, Promise]:
    """Give version and held-out RMSE of every active model, by link key; one without the figure promises nothing."""
    rmse = ShelvedModel.about[HELD_OUT_RMSE].as_float()
    question = select(ShelvedModel.link_key, ShelvedModel.version, rmse).where(ShelvedModel.state == "active")
    return {key: Promise(version, value) for key, version, value in session.execute(question) if value is not None}


def resting_links(session: Session, since: datetime) -> set[int]:
    """Give the links that are in a run, or whose run ended after a moment."""
    question = select(RetrainLink.link_key).where(
        or_(RetrainLink.state.in_(OPEN_LINK), RetrainLink.finished_at > since)
    )
    return set(session.scalars(question.distinct()))
