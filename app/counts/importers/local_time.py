"""Local times as count files write them: days, and the one or two slots that a local time can mean."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.counts.importers.record import YEAR_RULE, YEARS
from app.slots import SlotGrid, from_local

DAY_RULE = "must be a day, as d/m/yyyy or yyyy-mm-dd"
# Exports of the same data differ in whether they write out the day's midnight.
DAY = re.compile(r"(?:(\d{1,2})/(\d{1,2})/(\d{4})|(\d{4})-(\d\d)-(\d\d))(?:[ T]0?0:00(?::00(?:\.0+)?)?)?", re.ASCII)


class Occurrences(NamedTuple):
    """Numbers of the slots that start at a local time; there is a second one in the hour that autumn repeats."""

    first: int
    second: int | None


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
    """Say the rule by which a local time that the clocks skip is refused."""
    return f"must be a local time that exists in {zone.key}: the clocks skip it"
