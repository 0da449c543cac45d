"""Local times as count files write them: days, and the one or two moments that a local time can mean.

A local time that the clocks skip in spring is refused. One that they repeat in autumn is its first occurrence,
until the rows of a link go back by half the repeated hour or more: from there on they are the second. Smaller
steps back are rows out of order.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.core.slots import SlotGrid, from_local
from app.counts.importers.record import YEAR_RULE, YEARS

DAY_RULE = "must be a day, as d/m/yyyy or yyyy-mm-dd"
# Exports of the same data differ in whether they write out the day's midnight.
DAY = re.compile(r"(?:(\d{1,2})/(\d{1,2})/(\d{4})|(\d{4})-(\d\d)-(\d\d))(?:[ T]0?0:00(?::00(?:\.0+)?)?)?", re.ASCII)


class Occurrences(NamedTuple):
    """The minutes since 1970 that a local time can mean; there is a second one in the hour that autumn repeats."""

    first: int
    second: int | None = None


class RepeatedHours:
    """The last row of each link of a file, which decides what a repeated local time means next."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, bool]] = {}

    def minute(self, link_id: str, starts: Occurrences) -> int:
        """Return the minute at which the link's next row starts."""
        last, in_second = self._last.get(link_id, (starts.first, False))
        minute = starts.first
        if starts.second is not None:
            back = last - starts.first
            if 2 * back >= starts.second - starts.first or (in_second and back > 0):
                minute = starts.second
        self._last[link_id] = minute, minute == starts.second
        return minute


def day_of(text: str) -> date:
    """Read a day; raise ``ValueError`` with the rule that it breaks."""
    match = DAY.fullmatch(text)
    if not match:
        raise ValueError(DAY_RULE)
    day, month, year = match.group(1, 2, 3) if match[1] else match.group(6, 5, 4)
    try:
        read = date(int(year), int(month), int(day))
    except ValueError:
        raise ValueError(DAY_RULE) from None
    if read.year not in YEARS:
        raise ValueError(YEAR_RULE)
    return read


def occurrences(local: datetime, zone: ZoneInfo, row_minutes: int = 1) -> Occurrences:
    """Return the minutes that a local time can mean.

    A time that the clocks skip raises ``NonexistentTime``, one off the grid of rows ``ValueError``.
    """
    grid = SlotGrid(row_minutes)
    first, second = (row_minutes * grid.number(from_local(local.replace(fold=fold), zone)) for fold in (0, 1))
    return Occurrences(first, second if second != first else None)


def skipped_rule(zone: ZoneInfo) -> str:
    """Return the rule by which a local time that the clocks skip is refused."""
    return f"must be a local time that exists in {zone.key}: the clocks skip it"
