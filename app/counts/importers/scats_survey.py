"""SCATS counts in the layout of VicRoads' surveys: a row per approach and local day, columns 0:00 to 23:45."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from app.counts.importers.columns import header_of
from app.counts.importers.local_day import COLUMN_MINUTES, DayRow, day_counts, read_values
from app.counts.importers.progress import Progress
from app.counts.importers.record import ImportedCount, ImportedLink, whole_count
from app.counts.importers.scats import link_days, zone_of
from app.counts.tables import Quality

NAME = "scats-survey"
NEEDS = "SCATS Number, VR Internal Loc, Start Time, 0:00 to 23:45"
ROW_MINUTES = COLUMN_MINUTES
SITE, APPROACH, DAY, PLACE = "SCATS Number", "VR Internal Loc", "Start Time", "Location"
LATITUDE, LONGITUDE = "NB_LATITUDE", "NB_LONGITUDE"
TIMES = tuple(f"{minute // 60}:{minute % 60:02}" for minute in range(0, 1440, 15))
NEEDED = (SITE, APPROACH, DAY, *TIMES)


def recognises(first_line: str) -> bool:
    """Return whether a first line has the columns of this layout."""
    return set(NEEDED) <= set(header_of(first_line))


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts; an empty cell is a declared gap."""
    zone = zone_of(progress)
    days = link_days(progress, lines, NEEDED, site=SITE, part=APPROACH, day=DAY)
    for line, fields, link_id, day in days:
        if link_id not in progress.links:
            place = fields.get(PLACE) or link_id
            progress.links[link_id] = ImportedLink(link_id, place, zone, *_position(fields))
        values = read_values(progress, line, {time: fields[time] for time in TIMES}, _cell)
        yield from day_counts(progress, zone, DayRow(line, link_id, day, TIMES, values), Quality.OBSERVED)


def _cell(text: str) -> int | None:
    return whole_count(text) if text else None


def _position(fields: dict[str, str]) -> tuple[float | None, float | None]:
    """Latitude and longitude; the bureau writes 0 and 0 where it does not know them."""
    try:
        latitude, longitude = float(fields[LATITUDE]), float(fields[LONGITUDE])
    except (KeyError, ValueError):
        return None, None
    known = isfinite(latitude) and isfinite(longitude) and (latitude or longitude)
    return (latitude, longitude) if known and abs(latitude) <= 90 and abs(longitude) <= 180 else (None, None)
