"""The counts of a file on their way into the database: kept on disk, summed into slots, returned link by link.

A file is read to its end before anything is stored, because only then is its slot length known, and so that reading,
which is slow, holds up no other writer. Memory does not grow with the file, only with a group of links.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import numpy as np

from app.core.slots import EPOCH, SlotGrid
from app.counts.importers import ImportedCount, ImportedLink, ImportReport, Quality, Refusal
from app.counts.importers.record import COUNT_RULE
from app.counts.importers.slot_sums import NO_COUNT, ROW, ReadPart, Rows, Sums, sum_link
from app.counts.tables import QUALITIES

WRITTEN_AT_ONCE = 50_000
MOST_IN_A_GROUP = 200_000

_PLACES = {quality: QUALITIES.index(quality.value) for quality in Quality}


class CountSource(Protocol):
    """Rows with the links and the report that fill up as they are read, as ``CountReader`` has them."""

    @property
    def grid(self) -> SlotGrid:
        """The grid of links that have no slot length of their own."""

    @property
    def links(self) -> dict[str, ImportedLink]:
        """The links seen so far."""

    @property
    def report(self) -> ImportReport:
        """What was read so far."""

    @property
    def parts(self) -> Sequence[ReadPart]:
        """The files read so far, of which the last one is being read."""

    def __iter__(self) -> Iterator[ImportedCount]: ...


class LinkRows(NamedTuple):
    """The counts of one link in the order of time; of several for one time the last one came last."""

    link_id: str
    rows: Rows


class Spool:
    """A temporary file of counts, first a row's each and then a slot's each; links are numbered as they come."""

    def __init__(self, source: CountSource) -> None:
        self._source = source
        self._rows = _RowFile()
        self._links: dict[str, int] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def link_ids(self) -> list[str]:
        """The links that have rows, in the order of their first."""
        return list(self._links)

    def read(self) -> None:
        """Read the source to its end."""
        for count in self._source:
            link = self._links.setdefault(count.link_id, len(self._links))
            vehicles = NO_COUNT if count.count is None else count.count
            part = len(self._source.parts) - 1
            self._rows.add((link, part, 60 * count.minute, vehicles, _PLACES[count.quality]))

    def sum_into_slots(self, slot_minutes: Mapping[str, int] | None = None) -> None:
        """Sum the rows into the slots of their links, and account for them in the report.

        Links without a slot length have that of the source. Raise ``CountFileError`` where rows cannot be summed.
        """
        known, usual = slot_minutes or {}, self._source.grid.slot_minutes
        summed = _RowFile()
        done: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        try:
            for link_id, rows in (one for group in self.groups() for one in group):
                length = known.get(link_id, usual)
                by_length = sum_link(link_id, rows, self._source.parts, length)
                for row_minutes, sums in by_length.items():
                    tally = done[row_minutes, length]
                    for i, n in enumerate((sums.slots, sums.gaps, sums.repeated)):
                        tally[i] += n
                summed.write(self._accounted(link_id, len(rows), list(by_length.values())))
        except BaseException:
            summed.close()
            raise
        self._rows.close()
        self._rows = summed
        self._source.report.notes += [
            _note(*lengths, *tally) for lengths, tally in done.items() if len(set(lengths)) > 1
        ]

    def groups(self, most: int = MOST_IN_A_GROUP) -> Iterator[list[LinkRows]]:
        """Return the counts back, some links at a time, about ``most`` counts together."""
        rows = self._rows.read()
        if not len(rows):
            return
        ends = np.cumsum(np.bincount(rows["link"], minlength=len(self._links)))
        names, first = self.link_ids, 0
        while first < len(names):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            yield _by_link(rows[(rows["link"] >= first) & (rows["link"] < last)], names, first, last)
            first = last

    def _accounted(self, link_id: str, n_rows: int, sums: list[Sums]) -> Rows:
        """Account for the sums of a link, and return those that are counts."""
        report = self._source.report
        rows = np.concatenate([one.rows for one in sums])
        report.values += sum(one.slots for one in sums) - n_rows  # a row was a value until it was summed
        report.gaps += sum(one.gaps for one in sums)
        for start, total in (large for one in sums for large in one.too_large):
            shown = f"{total} of {link_id} at {EPOCH + timedelta(seconds=start):%Y-%m-%dT%H:%MZ}"
            report.refuse(Refusal("the file", 0, "count", shown, COUNT_RULE))
        report.counts += len(rows)
        report.imputed += int((rows["quality"] == _PLACES[Quality.IMPUTED]).sum())
        report.suspect += int((rows["quality"] == _PLACES[Quality.SUSPECT]).sum())
        if len(rows):
            report.spans[link_id] = int(rows["start"].min()), int(rows["start"].max()), len(rows)
        return rows


class _RowFile:
    """A temporary file of rows."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by its owner
        self._waiting: list[tuple[int, int, int, int, int]] = []
        self._written = 0

    def __len__(self) -> int:
        return self._written + len(self._waiting)

    def add(self, row: tuple[int, int, int, int, int]) -> None:
        """Add one row."""
        self._waiting.append(row)
        if len(self._waiting) >= WRITTEN_AT_ONCE:
            self._flush()

    def write(self, rows: Rows) -> None:
        """Add many rows."""
        self._file.write(rows.tobytes())
        self._written += len(rows)

    def read(self) -> Any:
        """Return all rows, of which those that are looked at come from the disk."""
        self._flush()
        self._file.flush()
        return np.memmap(self._file, dtype=ROW, mode="r") if self._written else np.empty(0, dtype=ROW)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _flush(self) -> None:
        self.write(np.array(self._waiting, dtype=ROW))
        self._waiting.clear()


def _by_link(rows: Rows, names: list[str], first: int, last: int) -> list[LinkRows]:
    ordered = rows[np.lexsort((rows["start"], rows["link"]))]  # stable: what came later stays later
    bounds = np.searchsorted(ordered["link"], np.arange(first, last + 1))
    links = [LinkRows(names[first + i], ordered[bounds[i] : bounds[i + 1]]) for i in range(last - first)]
    return [link for link in links if len(link.rows)]


def _note(row_minutes: int, slot_minutes: int, slots: int, gaps: int, repeated: int) -> str:
    note = f"rows of {row_minutes} minutes are summed into {slots:,} slots of {slot_minutes} minutes"
    if gaps:
        note += f"; {gaps:,} of them lack a row or its count and are gaps"
    if repeated:
        note += f"; {repeated:,} rows gave way to a later row for the same time"
    return note
