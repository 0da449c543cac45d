"""SCATS counts of VicRoads, as surveys and as signals: a row per link and local day, with a column per slot.

An ordinary day's columns are its slots. In autumn a local time that comes twice is its first
occurrence; the second is not in the file and stays a gap. In spring the file has more columns than
the day has slots. If a run of zeros exactly as long as the skipped hour lies within one column of
it, that run is where the bureau padded the day: it is a declared gap, and the other columns are
the day's slots in order. Otherwise the columns whose local time does not exist are refused by
name and the others go by their local time; where a longer run of zeros hides the padding, its
zeros next to the skipped hour are marked suspect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.core.slots import SlotGrid, from_local
from app.counts.importers.local_time import day_of, skipped_rule
from app.counts.importers.reader import CountReader, Layout, has_columns
from app.counts.importers.record import LINK_ID, LINK_ID_RULE, ImportedCount, ImportedLink, whole_count
from app.counts.tables import Quality

COLUMN_MINUTES = 15
COLUMNS = 24 * 60 // COLUMN_MINUTES
GRID = SlotGrid(COLUMN_MINUTES)
ZONE = "Australia/Melbourne"
DOUBTFUL_ZERO = "a zero beside the hour that the clocks skip may be padding"

NUMBER, APPROACH, START, PLACE = "SCATS Number", "VR Internal Loc", "Start Time", "Location"
LATITUDE, LONGITUDE = "NB_LATITUDE", "NB_LONGITUDE"
TIMES = tuple(f"{minute // 60}:{minute % 60:02}" for minute in range(0, 1440, COLUMN_MINUTES))
SURVEY_COLUMNS = (NUMBER, APPROACH, START, *TIMES)

SITE, DETECTOR = "NB_SCATS_SITE", "NB_DETECTOR"
DAY = "QT_INTERVAL_COUNT"  # a date, in spite of its name
RECORDS, TOTAL, ALARMS = "CT_RECORDS", "QT_VOLUME_24HOUR", "CT_ALARM_24HOUR"
CELLS = tuple(f"V{column:02}" for column in range(COLUMNS))
SIGNALS_COLUMNS = (SITE, DAY, DETECTOR, *CELLS, RECORDS, TOTAL, ALARMS)

Values = Sequence[int | None]


class Placement(NamedTuple):
    """Slot of each column (None where local time skips it), the padding, and the zeros not to trust."""

    slots: Sequence[int | None]
    padding: range = range(0)
    doubtful: frozenset[int] = frozenset()


def read_survey(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of a survey, a row per approach and day; an empty cell is a declared gap."""

    def cell(text: str) -> int | None:
        return whole_count(text) if text else None

    for fields, link_id, day in _days(reader, lines, SURVEY_COLUMNS, NUMBER, APPROACH, START):
        if link_id not in reader.links:
            name = fields.get(PLACE) or link_id
            reader.add_link(ImportedLink(link_id, name, reader.zone_or(ZONE), *_position(fields)))
        values = _values(reader, fields, TIMES, cell)
        yield from _day_counts(reader, link_id, day, TIMES, values, Quality.OBSERVED)


def read_signals(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of signals, a row per detector and day.

    A negative or empty cell is a declared gap, and an unsound row's counts are suspect.
    """

    def cell(text: str) -> int | None:
        if not text or (text[0] == "-" and text[1:].isdecimal() and text.strip("-0")):
            return None
        return whole_count(text)

    for fields, link_id, day in _days(reader, lines, SIGNALS_COLUMNS, SITE, DETECTOR, DAY):
        if link_id not in reader.links:
            name = f"SCATS site {fields[SITE]}, detector {fields[DETECTOR]}"
            reader.add_link(ImportedLink(link_id, name, reader.zone_or(ZONE)))
        values = _values(reader, fields, CELLS, cell)
        faults = _faults(fields, sum(value or 0 for value in values))
        quality = Quality.SUSPECT if faults else Quality.OBSERVED
        for count in _day_counts(reader, link_id, day, CELLS, values, quality):
            reader.report.suspects.update(faults)
            yield count


LAYOUTS = (
    Layout(
        "scats-survey",
        "SCATS Number, VR Internal Loc, Start Time, 0:00 to 23:45",
        has_columns(SURVEY_COLUMNS),
        read_survey,
        COLUMN_MINUTES,
    ),
    Layout(
        "scats-signals",
        "NB_SCATS_SITE, QT_INTERVAL_COUNT, NB_DETECTOR, V00 to V95, CT_RECORDS, QT_VOLUME_24HOUR, CT_ALARM_24HOUR",
        has_columns(SIGNALS_COLUMNS),
        read_signals,
        COLUMN_MINUTES,
    ),
)


def place(values: Values, day: date, zone: ZoneInfo) -> Placement:
    """Return the slot of each column by the rule above."""
    slots, real = _local_slots(day, zone)
    skipped = [column for column, slot in enumerate(slots) if slot is None]
    if not skipped:
        return Placement(slots)
    near = range(max(skipped[0] - 1, 0), min(skipped[-1] + 2, COLUMNS))
    runs = list(_runs_of_zeros(values))
    for run in runs:
        inside = run.start in near and run.stop - 1 in near
        if inside and len(run) == len(skipped) == COLUMNS - len(real):
            in_order = iter(real)
            return Placement([None if column in run else next(in_order) for column in range(COLUMNS)], run)
    longer = [run for run in runs if len(run) > len(skipped)]
    return Placement(slots, doubtful=frozenset(column for run in longer for column in run if column in near))


def _days(
    reader: CountReader, lines: Iterator[bytes], needed: Sequence[str], site: str, part: str, day: str
) -> Iterator[tuple[dict[str, str], str, date]]:
    """Return the rows with their links and days, which stand in the named columns; refuse rows without either."""
    for fields in reader.table(lines, needed, values=COLUMNS):
        link_id = f"{fields[site]}-{fields[part]}"  # leading zeros kept
        if not fields[site] or not fields[part] or not LINK_ID.fullmatch(link_id):
            reader.refuse(site, link_id, LINK_ID_RULE, COLUMNS)
            continue
        try:
            read = day_of(fields[day])
        except ValueError as rule:
            reader.refuse(day, fields[day], str(rule), COLUMNS)
        else:
            yield fields, link_id, read


def _values(
    reader: CountReader, fields: dict[str, str], names: Sequence[str], read: Callable[[str], int | None]
) -> list[int | None]:
    """Read the cells of a row; ``read`` gives None for a declared gap and raises the rule it refuses by."""
    values: list[int | None] = []
    for name in names:
        try:
            value = read(fields[name])
            reader.report.gaps += value is None
        except ValueError as rule:
            reader.refuse(name, fields[name], str(rule))
            value = None
        values.append(value)
    return values


def _day_counts(
    reader: CountReader, link_id: str, day: date, names: Sequence[str], values: Values, quality: Quality
) -> Iterator[ImportedCount]:
    """Return the counts of a row, each at its slot."""
    zone = reader.zone_or(ZONE)
    placement = place(values, day, zone)
    for column, (slot, value) in enumerate(zip(placement.slots, values, strict=True)):
        if value is None:
            continue
        if column in placement.padding:
            reader.report.gaps += 1
        elif slot is None:
            reader.refuse(f"{day.isoformat()} {names[column]}", value, skipped_rule(zone))
        elif column in placement.doubtful:
            reader.report.suspects[DOUBTFUL_ZERO] += 1
            yield ImportedCount(link_id, COLUMN_MINUTES * slot, value, Quality.SUSPECT)
        else:
            yield ImportedCount(link_id, COLUMN_MINUTES * slot, value, quality)


@lru_cache(maxsize=64)  # a file goes by link or by day, and months of days are few
def _local_slots(day: date, zone: ZoneInfo) -> tuple[tuple[int | None, ...], range]:
    """Return the slot of each column by its local time, and all slots that the day really has."""
    midnight = datetime(day.year, day.month, day.day)
    starts = [midnight + timedelta(minutes=COLUMN_MINUTES * column) for column in range(COLUMNS)]
    return tuple(_slot(start, zone) for start in starts), GRID.local_day(day, zone)


def _slot(start: datetime, zone: ZoneInfo) -> int | None:
    try:
        return GRID.number(from_local(start, zone))
    except ValueError:
        return None


def _runs_of_zeros(values: Values) -> Iterator[range]:
    for zero, columns in groupby(range(len(values)), lambda column: values[column] == 0):
        if zero:
            run = list(columns)
            yield range(run[0], run[-1] + 1)


def _position(fields: dict[str, str]) -> tuple[float | None, float | None]:
    """Return latitude and longitude; the bureau writes 0 and 0 where it does not know them."""
    try:
        latitude, longitude = float(fields[LATITUDE]), float(fields[LONGITUDE])
    except (KeyError, ValueError):
        return None, None
    known = isfinite(latitude) and isfinite(longitude) and (latitude or longitude)
    return (latitude, longitude) if known and abs(latitude) <= 90 and abs(longitude) <= 180 else (None, None)


def _faults(fields: dict[str, str], total: int) -> list[str]:
    """Return why a row is unsound; a figure that is no number makes it so, too."""
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
