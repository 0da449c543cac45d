"""SCATS counts in the layout of VicRoads' signals: a row per detector and local day, columns V00 to V95."""

from __future__ import annotations

from collections.abc import Iterator

from app.counts.importers.columns import header_of
from app.counts.importers.local_day import COLUMN_MINUTES, COLUMNS, DayRow, day_counts, read_values
from app.counts.importers.progress import Progress
from app.counts.importers.record import ImportedCount, ImportedLink, whole_count
from app.counts.importers.scats import link_days, zone_of
from app.counts.tables import Quality

NAME = "scats-signals"
NEEDS = "NB_SCATS_SITE, QT_INTERVAL_COUNT, NB_DETECTOR, V00 to V95, CT_RECORDS, QT_VOLUME_24HOUR, CT_ALARM_24HOUR"
ROW_MINUTES = COLUMN_MINUTES
SITE, DETECTOR = "NB_SCATS_SITE", "NB_DETECTOR"
DAY = "QT_INTERVAL_COUNT"  # a date, whatever its name says
RECORDS, TOTAL, ALARMS = "CT_RECORDS", "QT_VOLUME_24HOUR", "CT_ALARM_24HOUR"
CELLS = tuple(f"V{column:02}" for column in range(COLUMNS))
NEEDED = (SITE, DAY, DETECTOR, *CELLS, RECORDS, TOTAL, ALARMS)


def recognises(first_line: str) -> bool:
    """Return whether a first line has the columns of this layout."""
    return set(NEEDED) <= set(header_of(first_line))


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts; a negative or empty cell is a declared gap, and an unsound row's counts are suspect."""
    zone = zone_of(progress)
    days = link_days(progress, lines, NEEDED, site=SITE, part=DETECTOR, day=DAY)
    for line, fields, link_id, day in days:
        if link_id not in progress.links:
            title = f"SCATS site {fields[SITE]}, detector {fields[DETECTOR]}"
            progress.links[link_id] = ImportedLink(link_id, title, zone)
        values = read_values(progress, line, {cell: fields[cell] for cell in CELLS}, _cell)
        faults = _faults(fields, sum(value or 0 for value in values))
        quality = Quality.SUSPECT if faults else Quality.OBSERVED
        for count in day_counts(progress, zone, DayRow(line, link_id, day, CELLS, values), quality):
            for fault in faults:
                progress.report.suspects[fault] += 1
            yield count


def _cell(text: str) -> int | None:
    if not text or (text[0] == "-" and text[1:].isdecimal() and text.strip("-0")):
        return None
    return whole_count(text)


def _faults(fields: dict[str, str], total: int) -> list[str]:
    """Why a row is unsound, if it is; a figure that is no number cannot vouch for the row either."""
    faults = []
    if _number(fields[RECORDS]) != COLUMNS:
        faults.append(f"{RECORDS} is not {COLUMNS}")
    alarms = _number(fields[ALARMS])
    if alarms is None or alarms > 0:
        faults.append(f"{ALARMS} is above 0")
    if _number(fields[TOTAL]) != total:
        faults.append(f"{TOTAL} differs from the sum of the counts")
    return faults


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
