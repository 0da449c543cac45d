"""Rows of one local day with a column per slot: which slot each column is, on days of changing clocks too.

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
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.core.slots import SlotGrid, from_local
from app.counts.importers.local_time import skipped_rule
from app.counts.importers.progress import Progress
from app.counts.importers.record import ImportedCount
from app.counts.tables import Quality

COLUMN_MINUTES = 15
COLUMNS = 24 * 60 // COLUMN_MINUTES
GRID = SlotGrid(COLUMN_MINUTES)
DOUBTFUL_ZERO = "a zero beside the hour that the clocks skip may be padding"

Values = Sequence[int | None]


class Placement(NamedTuple):
    """Slot of each column (None where local time skips it), the padding, and the zeros not to trust."""

    slots: Sequence[int | None]
    hole: range = range(0)
    doubtful: frozenset[int] = frozenset()


class DayRow(NamedTuple):
    """One link's day: the columns' names and their values, None where there is no count to place."""

    line: int
    link_id: str
    day: date
    names: Sequence[str]
    values: Values


def read_values(
    progress: Progress, line: int, cells: dict[str, str], read: Callable[[str], int | None]
) -> list[int | None]:
    """Read the cells of a row; ``read`` gives None for a declared gap and raises the rule it refuses by."""
    values: list[int | None] = []
    for name, text in cells.items():
        try:
            value = read(text)
            progress.report.gaps += value is None
        except ValueError as rule:
            progress.refuse(line, name, text, str(rule))
            value = None
        values.append(value)
    return values


def day_counts(progress: Progress, zone: ZoneInfo, row: DayRow, quality: Quality) -> Iterator[ImportedCount]:
    """Return the counts of a row, each at its slot."""
    placement = place(row.values, row.day, zone)
    for column, value in enumerate(row.values):
        slot = placement.slots[column]
        if value is None:
            continue
        if column in placement.hole:
            progress.report.gaps += 1
        elif slot is None:
            progress.refuse(row.line, f"{row.day.isoformat()} {row.names[column]}", value, skipped_rule(zone))
        elif column in placement.doubtful:
            progress.report.suspects[DOUBTFUL_ZERO] += 1
            yield ImportedCount(row.link_id, COLUMN_MINUTES * slot, value, Quality.SUSPECT)
        else:
            yield ImportedCount(row.link_id, COLUMN_MINUTES * slot, value, quality)


def place(values: Values, day: date, zone: ZoneInfo) -> Placement:
    """Find the slot of each column by the rule above."""
    slots, real = local_slots(day, zone)
    skipped = [column for column, slot in enumerate(slots) if slot is None]
    if not skipped:
        return Placement(slots)
    near = range(max(skipped[0] - 1, 0), min(skipped[-1] + 2, COLUMNS))
    for hole in _runs_of_zeros(values):
        inside = hole.start in near and hole.stop - 1 in near
        if inside and len(hole) == len(skipped) == COLUMNS - len(real):
            in_order = iter(real)
            return Placement([None if column in hole else next(in_order) for column in range(COLUMNS)], hole)
    longer = [run for run in _runs_of_zeros(values) if len(run) > len(skipped)]
    return Placement(slots, doubtful=frozenset(column for run in longer for column in run if column in near))


@lru_cache(maxsize=64)  # a file goes by link or by day, and months of days are few
def local_slots(day: date, zone: ZoneInfo) -> tuple[tuple[int | None, ...], range]:
    """Slot of each column by its local time, and all slots that the day really has."""
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
