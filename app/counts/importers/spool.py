"""The counts of a file, kept on disk, summed into slots and returned link by link.

A file is read to its end before anything is stored, because only then is its slot length known, and because reading is
slow and other writers would wait. Memory does not grow with the file, only with a group of links.
"""

from __future__ import annotations

import struct
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from app.core.times import instant_of
from app.counts.importers.reader import CountReader
from app.counts.importers.record import COUNT_RULE, Refusal
from app.counts.importers.slot_sums import NO_COUNT, ROW, FileRows, check_length, sum_rows
from app.counts.tables import QUALITIES, Quality

PACKED_ROW = struct.Struct("<ihqib")
MOST_IN_A_GROUP = 200_000  # counts, of which there may be more only in a single link
ROWS_BETWEEN_NOTES = 5_000

Note = Callable[[str], None]  # called with the progress of an import
Tallies = dict[tuple[int, int], Counter[str]]  # numbers for a note, by the minutes of rows and slots


class Spool:
    """A temporary file of counts, first one a row and then one a slot; links are numbered in the order of the rows."""

    def __init__(self, reader: CountReader) -> None:
        self._reader = reader
        self._links: dict[str, int] = {}
        self._stack = ExitStack()
        self._file = self._new_file()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return self._file.tell() // ROW.itemsize

    @property
    def link_ids(self) -> list[str]:
        """Return the links that have rows, in the order of their first."""
        return list(self._links)

    def read(self, note: Note | None = None) -> None:
        """Read the source to its end."""
        for n, count in enumerate(self._reader, 1):
            link = self._links.setdefault(count.link_id, len(self._links))
            part = len(self._reader.parts) - 1
            vehicles = NO_COUNT if count.count is None else count.count
            self._file.write(PACKED_ROW.pack(link, part, 60 * count.minute, vehicles, QUALITIES.index(count.quality)))
            if note and n % ROWS_BETWEEN_NOTES == 0:
                note(f"{self._reader.report.rows:,} rows")

    def sum_into_slots(
        self,
        slot_minutes: Mapping[str, int] | None = None,
        permitted: Callable[[str, FileRows], FileRows] = lambda _link_id, rows: rows,
    ) -> None:
        """Sum the rows into the slots of their links, account for them in the report, and keep those ``permitted``.

        Links without a slot length have that of the reader. Raise ``CountFileError`` where rows cannot be summed.
        """
        grid, known = self._reader.grid, slot_minutes or {}
        tallies: Tallies = defaultdict(Counter)
        summed = self._new_file()
        for link_id, rows in (link for group in self.groups() for link in group):
            counts = self._sum_link(link_id, rows, known.get(link_id, grid.slot_minutes), tallies)
            summed.write(permitted(link_id, counts).tobytes())
        self._file.close()
        self._file = summed
        self._reader.report.notes += [
            _note(row_minutes, length, **tally)
            for (row_minutes, length), tally in tallies.items()
            if row_minutes != length
        ]

    def groups(self) -> Iterator[list[tuple[str, FileRows]]]:
        """Yield the counts of some links at a time, in the order of time; rows for one time keep their order."""
        self._file.flush()
        if not len(self):
            return
        rows: Any = np.memmap(self._file, dtype=ROW, mode="r")  # of which those that are looked at come from the disk
        ends = np.cumsum(np.bincount(rows["link"], minlength=len(self._links)))
        names, first = self.link_ids, 0
        while first < len(names):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + MOST_IN_A_GROUP, side="right")))
            some = rows[(rows["link"] >= first) & (rows["link"] < last)]
            some = some[np.lexsort((some["start"], some["link"]))]
            found, begins = np.unique(some["link"], return_index=True)
            yield [(names[link], part) for link, part in zip(found, np.split(some, begins)[1:], strict=True)]
            first = last

    def _new_file(self) -> IO[bytes]:
        return self._stack.enter_context(tempfile.TemporaryFile())

    def _sum_link(self, link_id: str, rows: FileRows, slot_minutes: int, tallies: Tallies) -> FileRows:
        """Sum the rows of a link, by the length of the rows, and account for the sums."""
        parts, report = self._reader.parts, self._reader.report
        lengths = np.array([part.row_minutes or slot_minutes for part in parts], dtype=np.int64)[rows["part"]]
        summed = []
        for row_minutes in np.unique(lengths).tolist():
            chosen = rows[lengths == row_minutes]
            check_length(chosen, parts[chosen["part"][0]].name, link_id, row_minutes, slot_minutes)
            sums = sum_rows(chosen, row_minutes, slot_minutes)
            report.values += sums.slots - len(chosen)  # a row was a value until it was summed
            report.gaps += sums.gaps
            for start, total in sums.too_large:
                shown = f"{total} of {link_id} at {instant_of(start):%Y-%m-%dT%H:%MZ}"
                report.refuse(Refusal("the file", 0, "count", shown, COUNT_RULE))
            tallies[row_minutes, slot_minutes].update(slots=sums.slots, gaps=sums.gaps, repeated=sums.repeated)
            summed.append(sums.rows)
        counts = np.concatenate(summed)
        counts = counts[np.argsort(counts["start"], kind="stable")]
        report.counts += len(counts)
        report.imputed += int((counts["quality"] == QUALITIES.index(Quality.IMPUTED)).sum())
        report.suspect += int((counts["quality"] == QUALITIES.index(Quality.SUSPECT)).sum())
        if len(counts):
            report.spans[link_id] = int(counts["start"][0]), int(counts["start"][-1]), len(counts)
        return counts


def _note(row_minutes: int, slot_minutes: int, slots: int, gaps: int, repeated: int) -> str:
    note = f"rows of {row_minutes} minutes are summed into {slots:,} slots of {slot_minutes} minutes"
    if gaps:
        note += f"; {gaps:,} of them lack a row or its count and are gaps"
    if repeated:
        note += f"; {repeated:,} rows are replaced by a later row for the same time"
    return note
