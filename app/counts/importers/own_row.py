"""One row of Flowcast's own layouts, CSV or JSON: a link, a slot by its start, a count or a gap.

A start is RFC 3339 with an offset, or without one if the caller names the zone, or seconds or milliseconds since 1970.
Eight, twelve or fourteen digits may be a date and are refused.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from app.core.slots import EPOCH, NonexistentTime, SlotGrid
from app.core.times import parse_rfc_3339
from app.counts.importers.columns import COUNT, LINK, QUALITY, SLOT
from app.counts.importers.local_time import Occurrences, occurrences, skipped_rule
from app.counts.importers.progress import Progress
from app.counts.importers.record import (
    COUNT_RULE,
    LARGEST_COUNT,
    LINK_ID,
    LINK_ID_RULE,
    OFFSET_RULE,
    QUALITY_RULE,
    SECONDS,
    SLOT_RULE,
    YEAR_RULE,
    CountFileError,
    ImportedCount,
    ImportedLink,
    Refused,
    whole_count,
)
from app.counts.tables import Quality

QUALITIES = {quality.value: quality for quality in Quality}
START_RULE = f"{SLOT_RULE}, or seconds since 1970"
ZONE_RULE = f"{OFFSET_RULE}, unless the option zone names the zone of local times"
UNIX_TIME = re.compile(r"(\d{9,10}|\d{13})(?:\.0+)?", re.ASCII)
MINUTES = SlotGrid(1)


class _OffGrid(ValueError):
    """A start that is not on a whole minute and so on no grid."""


def own_count(progress: Progress, link_id: str, slot_start: str, count: object, quality: str | None) -> ImportedCount:
    """Check a row and return its count; raise ``Refused`` if a field breaks its rule."""
    known = link_id in progress.links
    if not known and not LINK_ID.fullmatch(link_id):
        raise Refused(LINK, link_id, LINK_ID_RULE)
    try:
        starts = _starts(slot_start, progress.zone)
    except _OffGrid:
        raise CountFileError(
            f"{progress.source}, line {progress.line}: slot_start={slot_start!r} is off the grid, so nothing of the "
            "file is taken; slots start on whole minutes: correct the file or remove the row"
        ) from None
    vehicles = _count(count)
    taken = QUALITIES.get(quality.lower()) if quality else Quality.OBSERVED
    if taken is None:
        raise Refused(QUALITY, quality, QUALITY_RULE)
    if not known:
        progress.links[link_id] = ImportedLink(link_id, link_id, progress.zone)
    if taken is Quality.SUSPECT and vehicles is not None:
        progress.report.suspects["the file says so"] += 1
    return ImportedCount(link_id, progress.repeated.number(link_id, starts), vehicles, taken)


def _count(value: object) -> int | None:
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            return whole_count(value)
        whole = not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= LARGEST_COUNT
        if whole and value == int(value):  # type: ignore[call-overload]
            return int(value)  # type: ignore[call-overload, no-any-return]
    except ValueError:
        pass
    raise Refused(COUNT, value, COUNT_RULE)


@lru_cache(maxsize=10_000)  # a slot comes once per link, and is slow to read
def _starts(text: str, zone: ZoneInfo | None) -> Occurrences:
    """Return the minutes that a start can mean, counted from 1970 in UTC."""
    if match := UNIX_TIME.fullmatch(text):
        return _minute(int(match[1]) / (1000 if len(match[1]) == 13 else 1), text)
    start = parse_rfc_3339(text)
    if start is None:
        raise Refused(SLOT, text, START_RULE)
    if start.tzinfo is not None:
        return _minute((start - EPOCH).total_seconds(), text)
    if zone is None:
        raise Refused(SLOT, text, ZONE_RULE)
    return _local_minutes(start, text, zone)


def _minute(seconds: float, text: str) -> Occurrences:
    if int(seconds // 1) not in SECONDS:  # a float would be searched for, number by number
        raise Refused(SLOT, text, YEAR_RULE)
    if seconds % 60:
        raise _OffGrid
    return Occurrences(int(seconds // 60))


def _local_minutes(local: datetime, text: str, zone: ZoneInfo) -> Occurrences:
    try:
        starts = occurrences(local, zone, MINUTES)
    except NonexistentTime:
        raise Refused(SLOT, text, skipped_rule(zone)) from None
    except (ValueError, OverflowError):  # the second at the ends of the calendar
        raise _OffGrid from None
    if 60 * starts.first not in SECONDS:
        raise Refused(SLOT, text, YEAR_RULE)
    return starts
