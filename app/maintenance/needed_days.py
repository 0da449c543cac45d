"""How far back the service and its retraining look, in days."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.forecasts.profile_fallback import DAYS as PROFILE_DAYS
from app.links.tables import Link
from app.registry.tables import ModelVersion
from app.settings import Settings
from app.training.request import DEFAULT_DAYS as RETRAIN_DAYS
from app.training.tables import RetrainRun

WEEK = 8  # days that the same slot of last week may lie back, on a week with a change of clocks


class Need(NamedTuple):
    """Days of history, and who needs them."""

    days: int
    by: str


def needed_counts(session: Session, settings: Settings) -> Need:
    """Return how many days of counts are read: the most that forecasts, retraining and its trigger need."""
    window = -(-settings.retrain_trigger_window_hours // 24)
    return max(
        Need(RETRAIN_DAYS, "retraining reads so many by default"),
        Need(PROFILE_DAYS, "the profile is learnt from so many"),
        Need(window + WEEK, "the trigger on falling accuracy measures over so many, a week before included"),
        Need(_longest_lag(session), "the lag window of an active model reaches so far"),
        Need(_asked_for(session), "a retrain run that is not over was asked to read so many"),
    )


def needed_records(settings: Settings) -> Need:
    """Return how many days of finished retrain runs are read."""
    days = -(-settings.retrain_trigger_cool_down_hours // 24)
    return Need(days, "the trigger on falling accuracy lets a link rest for so many after a run")


def _longest_lag(session: Session) -> int:
    lags = ModelVersion.about[("plan", "lags")]
    question = select(Link.slot_minutes, lags).join(Link, Link.link_key == ModelVersion.link_key)
    rows = session.execute(question.where(ModelVersion.state == "active"))
    return max((-(-minutes * _furthest(found) // 1440) + 1 for minutes, found in rows), default=0)


def _furthest(lags: Any) -> int:
    """Take the number of lags, or the lags one by one."""
    if isinstance(lags, list):
        return max((_furthest(one) for one in lags), default=0)
    return int(lags) if isinstance(lags, int | float) else 0


def _asked_for(session: Session) -> int:
    runs = session.scalars(select(RetrainRun.parameters).where(RetrainRun.state.in_(("queued", "running"))))
    return max((int(parameters.get("days") or 0) for parameters in runs), default=0)
