"""The counts of a file on their way into the database: kept on disk, given back link by link.

A file is read to its end before anything is stored, so that reading, which is slow, holds up no
other writer. Memory does not grow with the file, only with a group of links.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.counts.importers import ImportedCount, Quality
from app.counts.tables import QUALITIES

ROW = np.dtype([("link", "<i4"), ("slot", "<i8"), ("count", "<i4"), ("quality", "i1")])
Rows = NDArray[np.void]
WRITTEN_AT_ONCE = 50_000
MOST_IN_A_GROUP = 200_000

_PLACES = {quality: QUALITIES.index(quality.value) for quality in Quality}


class LinkRows(NamedTuple):
    """The counts of one link in the order of slots; of several for a slot the last one came last."""

    link_id: str
    rows: Rows


class Spool:
    """A temporary file of counts; their links are numbered as they come."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the spool
        self._links: dict[str, int] = {}
        self._waiting: list[tuple[int, int, int, int]] = []
        self._written = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._written + len(self._waiting)

    @property
    def link_ids(self) -> list[str]:
        """The links that have counts, in the order of their first."""
        return list(self._links)

    def add(self, count: ImportedCount) -> None:
        """Take one more count."""
        link = self._links.setdefault(count.link_id, len(self._links))
        self._waiting.append((link, count.slot, count.count, _PLACES[count.quality]))
        if len(self._waiting) >= WRITTEN_AT_ONCE:
            self._write()

    def groups(self, most: int = MOST_IN_A_GROUP) -> Iterator[list[LinkRows]]:
        """Give the counts back, some links at a time, about ``most`` counts together."""
        self._write()
        if not self._written:
            return
        self._file.flush()
        rows: Any = np.memmap(self._file, dtype=ROW, mode="r")
        ends = np.cumsum(np.bincount(rows["link"], minlength=len(self._links)))
        names, first = self.link_ids, 0
        while first < len(names):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            yield _by_link(rows[(rows["link"] >= first) & (rows["link"] < last)], names, first, last)
            first = last

    def _write(self) -> None:
        rows = np.array(self._waiting, dtype=ROW)
        self._file.write(rows.tobytes())
        self._written += len(self._waiting)
        self._waiting.clear()


def _by_link(rows: Rows, names: list[str], first: int, last: int) -> list[LinkRows]:
    ordered = rows[np.lexsort((rows["slot"], rows["link"]))]  # stable: what came later stays later
    bounds = np.searchsorted(ordered["link"], np.arange(first, last + 1))
    return [LinkRows(names[first + i], ordered[bounds[i] : bounds[i + 1]]) for i in range(last - first)]
