"""Cron syntax: five fields, minute to weekday, read as UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

FIELDS = 5
RULE = "it must be five fields of cron syntax, such as 0 3 * * 1 for Mondays at three, in UTC"


def check_cron(expression: str) -> None:
    """Refuse, by ``ValueError``, what is no cron expression or names no moment that ever comes."""
    if len(expression.split()) != FIELDS:  # the library would take seconds as well
        raise ValueError(RULE)
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as problem:
        raise ValueError(f"{RULE}: {problem}") from None
    except StopIteration:
        raise ValueError(f"{RULE}: it names no moment that ever comes") from None


def last_moment(expression: str, now: datetime) -> datetime:
    """Return the latest moment that an expression names, not later than now."""
    after = now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)  # the library looks strictly before
    return next(CronSim(expression, after, reverse=True))
