"""RFC 3339 times, spans of time, and schedules in cron syntax."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

from cronsim import CronSim, CronSimError
from pydantic import BeforeValidator

from app.core.errors import Invalid
from app.core.slots import EPOCH

INSTANT_RULE = "must be an RFC 3339 time with an offset, such as 2025-09-01T08:00:00Z or 2025-09-01T10:00:00+02:00"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
# In a query string a plus sign that was not escaped arrives as a space.
LOST_PLUS = re.compile(r" (?=\d\d:\d\d$)")
# Counts lie in these years; spans beyond them are empty.
FIRST_SECOND, LAST_SECOND = 0, 4_102_444_800
SECONDS_A_DAY = 86_400
CRON_FIELDS = 5
CRON_RULE = "it must be five fields of cron syntax, such as 0 3 * * 1 for Mondays at three, in UTC"


def parse_rfc_3339(text: str) -> datetime | None:
    """Return a time, naive where it has no offset; None if the text is not an RFC 3339 time."""
    if not RFC_3339.fullmatch(text.upper()):
        return None
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:  # such as the 30th of February
        return None


def read_instant(value: object) -> datetime:
    """Return a time of a query string, which must have an offset; raise a ``ValueError`` with the rule otherwise."""
    if isinstance(value, datetime):
        text = value.isoformat()
    else:
        text = str(value)
        if len(text) > 16:  # a space in place of the T comes before the sixteenth character
            text = text[:16] + LOST_PLUS.sub("+", text[16:])
    instant = parse_rfc_3339(text)
    if instant is None or instant.tzinfo is None:
        raise ValueError(f"it {INSTANT_RULE}")
    return instant


def rfc_3339(instant: datetime) -> str:
    """Return an instant as text, with a Z for UTC."""
    return instant.isoformat().replace("+00:00", "Z")


def unix_seconds(instant: datetime) -> int:
    """Return the whole seconds since 1970 at or after an instant, kept to the years in which counts lie."""
    passed = instant - EPOCH  # not astimezone: the ends of the calendar have no UTC
    whole = passed.days * 86_400 + passed.seconds + (passed.microseconds > 0)
    return min(max(whole, FIRST_SECOND), LAST_SECOND)


def instant_of(seconds: int) -> datetime:
    """Return the UTC instant of Unix seconds."""
    return EPOCH + timedelta(seconds=seconds)


Instant = Annotated[datetime, BeforeValidator(read_instant)]


class Span(NamedTuple):
    """From a second to another, the last one excluded, in Unix seconds."""

    begin: int
    end: int

    def slots(self, slot_seconds: int) -> range:
        """List the starts of the slots in the span, on the grid of their length."""
        first = -(-self.begin // slot_seconds) * slot_seconds
        return range(first, self.end, slot_seconds)


def check_order(begin: datetime | None, end: datetime | None) -> None:
    """Raise ``Invalid`` if a span ends before it begins."""
    if begin is not None and end is not None and begin >= end:
        raise Invalid.field("from", rfc_3339(begin), f"must lie before to={rfc_3339(end)}")


def read_span(begin: datetime | None, end: datetime | None, newest_end: int | None, length: int) -> Span | None:
    """Return a span whose end is the newest count's by default, and whose start lies ``length`` seconds before.

    None where neither end was given and there is no count.
    """
    check_order(begin, end)
    last = newest_end if end is None else unix_seconds(end)
    if last is None:
        if begin is None:
            return None
        last = unix_seconds(begin)
    return Span(max(0, last - length) if begin is None else unix_seconds(begin), last)


def check_cron(expression: str) -> None:
    """Raise ``ValueError`` if a text is not a cron expression, or one that never becomes due."""
    if len(expression.split()) != CRON_FIELDS:  # CronSim would accept a sixth field, for seconds
        raise ValueError(CRON_RULE)
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as problem:
        raise ValueError(f"{CRON_RULE}: {problem}") from None
    except StopIteration:
        raise ValueError(f"{CRON_RULE}: it names a time that never comes") from None


def last_cron_time(expression: str, now: datetime) -> datetime:
    """Return the latest time that a cron expression names, not later than now."""
    after = now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)  # CronSim looks strictly before
    return next(CronSim(expression, after, reverse=True))
