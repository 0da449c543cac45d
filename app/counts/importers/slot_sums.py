"""The length of a file's rows, and sums of rows over the longer slots of a link.

The length is the shortest step between slot starts of the file that makes up a tenth of all steps or more. Gaps
therefore do not make it longer, nor a few rows off the grid shorter. A single step that is longer than the slots of
new links may be a gap and shows nothing. Rows shorter than a slot are summed. A slot that lacks a row, or has one
without a count, is a gap, because the sum of the others would be too small. Rows longer than a slot cannot be split,
and rows off the grid belong to no slot: such a file is refused whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.slots import MINUTES_A_DAY
from app.core.times import instant_of
from app.counts.importers.record import LARGEST_COUNT, CountFileError

# In a file and packed, as ``struct`` writes them: the link and the part by number, the start in Unix seconds.
ROW = np.dtype([("link", "<i4"), ("part", "<i2"), ("start", "<i8"), ("count", "<i4"), ("quality", "i1")])
NO_COUNT = -1
LEAST_SHARE = 0.1  # of all steps, for one to be the length

FileRows = NDArray[np.void]


class SlotStarts:
    """The minutes at which the rows of a file start; memory grows with its days and not with its rows."""

    def __init__(self) -> None:
        self._days: dict[int, int] = {}  # a bit for each minute

    def add(self, minute: int) -> None:
        """Add the start of a row."""
        day, of_day = divmod(minute, MINUTES_A_DAY)
        self._days[day] = self._days.get(day, 0) | 1 << of_day

    def length(self, slot_minutes: int) -> int | None:
        """Return the length of the rows in minutes; None where the starts do not show it."""
        steps = self._steps()
        frequent = [step for step, n in steps.items() if n >= LEAST_SHARE * steps.total()]
        length = min(frequent or steps, default=0)
        certain = length and MINUTES_A_DAY % length == 0 and (length <= slot_minutes or steps.total() > 1)
        return length if certain else None

    def _steps(self) -> Counter[int]:
        steps: Counter[int] = Counter()
        last = np.empty(0, dtype=np.int64)
        for day in sorted(self._days):
            bits = np.frombuffer(self._days[day].to_bytes(MINUTES_A_DAY // 8, "little"), dtype=np.uint8)
            minutes = MINUTES_A_DAY * day + np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            found, n = np.unique(np.diff(np.concatenate([last, minutes])), return_counts=True)
            steps.update(dict(zip(found.tolist(), n.tolist(), strict=True)))
            last = minutes[-1:]
        return steps


@dataclass
class ReadPart:
    """A file, or a member of an archive, and the minutes that its rows cover; None where that is not known."""

    name: str
    row_minutes: int | None = None


class Sums(NamedTuple):
    """The counts of one link by slot, the slots that are gaps, and how many rows a later one replaced.

    ``too_large`` has the starts and the sums of slots whose sum is no count any more.
    """

    rows: FileRows
    gaps: int
    repeated: int = 0
    too_large: tuple[tuple[int, int], ...] = ()

    @property
    def slots(self) -> int:
        """Return how many slots have a count, a gap or a sum that is too large."""
        return len(self.rows) + self.gaps + len(self.too_large)


def sum_rows(rows: FileRows, row_minutes: int, slot_minutes: int) -> Sums:
    """Sum the rows of a link, which are in the order of time, over its slots."""
    rows_a_slot, slot_seconds = slot_minutes // row_minutes, 60 * slot_minutes
    if rows_a_slot == 1:
        counted = rows[rows["count"] != NO_COUNT]
        return Sums(counted, len(rows) - len(counted))
    latest = latest_rows(rows)
    slots = latest["start"] // slot_seconds
    first = np.flatnonzero(np.diff(slots, prepend=-1))
    n_counted = np.add.reduceat((latest["count"] != NO_COUNT).astype(np.int64), first)
    totals = np.add.reduceat(latest["count"], first, dtype=np.int64)
    whole, fits = n_counted == rows_a_slot, totals <= LARGEST_COUNT
    sums = latest[first]
    sums["start"] = slots[first] * slot_seconds
    sums["count"] = np.where(fits, totals, NO_COUNT)
    sums["quality"] = np.maximum.reduceat(latest["quality"], first)
    large = whole & ~fits
    too_large = tuple(zip(sums["start"][large].tolist(), totals[large].tolist(), strict=True))
    return Sums(sums[whole & fits], int((~whole).sum()), len(rows) - len(latest), too_large)


def latest_rows(rows: FileRows) -> FileRows:
    """Return the last one of several rows for one time; the rows are in the order of time."""
    latest: FileRows = rows[np.diff(rows["start"], append=-1) != 0]
    return latest


def check_length(rows: FileRows, part: str, link_id: str, row_minutes: int, slot_minutes: int) -> None:
    """Raise ``CountFileError`` if rows of a length do not fit the slots of a link."""
    if row_minutes > slot_minutes:
        raise CountFileError(
            f"{part} has slots of {row_minutes} minutes, and link {link_id} has slots of {slot_minutes}: counts cannot "
            f"be split, so nothing of the file is used. Import it into links whose slot_minutes is {row_minutes}, "
            "which the option slot-minutes gives to new ones. If its counts are shorter and only far apart, add a row "
            "with an empty count for a slot between two of them"
        )
    if slot_minutes % row_minutes:
        raise CountFileError(
            f"{part} has slots of {row_minutes} minutes, which do not add up to the {slot_minutes} minutes of link "
            f"{link_id}'s slots, so nothing of the file is used; a slot must be a whole number of the file's"
        )
    off = rows["start"][rows["start"] % (60 * row_minutes) != 0]
    if len(off):
        start = instant_of(int(off[0]))
        raise CountFileError(
            f"{part} is off the grid of {row_minutes}-minute slots: one of link {link_id} starts at "
            f"{start:%Y-%m-%dT%H:%MZ}, so nothing of the file is used. Slots are named by their start and begin at "
            "midnight UTC; correct the times or the zone, or remove such rows"
        )
