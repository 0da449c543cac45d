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
    """Numbers of the slots that start at a local time; there is a second one in the hour that autumn repeats."""

    first: int
    second: int | None = None


class RepeatedHours:
    """The last row of each link of a file, which decides what a repeated local time means next."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, bool]] = {}

    def number(self, link_id: str, starts: Occurrences) -> int:
        """Return the number of the link's next row."""
        last, in_second = self._last.get(link_id, (starts.first, False))
        number = starts.first
        if starts.second is not None:
            back = last - starts.first
            if 2 * back >= starts.second - starts.first or (in_second and back > 0):
                number = starts.second
        self._last[link_id] = number, number == starts.second
        return number


def day_of(text: str) -> date:
    """Read a day, or refuse it with the rule."""
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


def occurrences(local: datetime, zone: ZoneInfo, grid: SlotGrid) -> Occurrences:
    """Find the slots that start at a local time; one that the clocks skip raises ``NonexistentTime``."""
    first, second = (grid.number(from_local(local.replace(fold=fold), zone)) for fold in (0, 1))
    return Occurrences(first, second if second != first else None)


def skipped_rule(zone: ZoneInfo) -> str:
    """Return the rule by which a local time that the clocks skip is refused."""
    return f"must be a local time that exists in {zone.key}: the clocks skip it"
