"""A link's counts as an unbroken run of slots, in which a missing count is a gap and never a zero."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from app.core.slots import Calendar, SlotGrid, zone_named
from app.counts.import_spool import Spool
from app.counts.importers import CountReader, Quality
from app.counts.importers.slot_sums import Rows
from app.counts.tables import QUALITIES
from model.link_model.series import CountSeries


@dataclass(frozen=True, eq=False)
class LinkSeries:
    """Counts of one link from slot number ``first`` on; NaN is a gap.

    Suspect counts are in ``counts`` as well: whoever learns leaves them out. ``replaced`` says
    how many counts gave way to a later one for the same slot.
    """

    link_id: str
    grid: SlotGrid
    zone: ZoneInfo
    first: int
    counts: NDArray[np.float64]
    suspect: NDArray[np.bool_]
    replaced: int = 0

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or self.counts.shape != self.suspect.shape:
            raise ValueError(
                f"link {self.link_id}: counts {self.counts.shape} and suspect {self.suspect.shape} must be rows alike"
            )

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def slots(self) -> range:
        """Numbers of the slots."""
        return range(self.first, self.first + len(self))

    @property
    def gaps(self) -> int:
        """How many slots have no count."""
        return int(np.isnan(self.counts).sum())

    def calendar(self) -> Calendar:
        """Local weekday and slot of the day of each slot."""
        return self.grid.calendar(self.first, len(self), self.zone)


class _Columns:
    """A link's counts in the order they came, at 17 bytes each."""

    def __init__(self, link_id: str, grid: SlotGrid, zone: ZoneInfo) -> None:
        self.link_id, self.grid, self.zone = link_id, grid, zone
        self.slots = array("q")
        self.counts = array("d")
        self.suspect = bytearray()

    def add(self, rows: Rows) -> None:
        self.slots.frombytes((rows["start"] // (60 * self.grid.slot_minutes)).astype(np.int64).tobytes())
        self.counts.frombytes(rows["count"].astype(np.float64).tobytes())
        self.suspect += (rows["quality"] == QUALITIES.index(Quality.SUSPECT)).tobytes()

    def series(self) -> LinkSeries:
        slots = np.frombuffer(self.slots, dtype=np.int64)
        first = int(slots.min())
        counts = np.full(int(slots.max()) - first + 1, np.nan)
        suspect = np.zeros(len(counts), dtype=np.bool_)
        counts[slots - first] = np.frombuffer(self.counts)  # of several for one slot, NumPy keeps the last
        suspect[slots - first] = np.frombuffer(self.suspect, dtype=np.bool_)
        replaced = len(slots) - int(np.count_nonzero(~np.isnan(counts)))
        return LinkSeries(self.link_id, self.grid, self.zone, first, counts, suspect, replaced)


def gather(*readers: CountReader) -> dict[str, LinkSeries]:
    """Build the series of all links, from one file or several; a link without a single count has none.

    Rows are summed into the slots of the readers' grid. A later count for a slot replaces the earlier; a link's zone
    is that of the first file it is in.
    """
    if len(grids := {reader.grid for reader in readers}) > 1:
        raise ValueError(f"slots of {', '.join(sorted(f'{g.slot_minutes}' for g in grids))} minutes cannot be joined")
    columns: dict[str, _Columns] = {}
    for reader in readers:
        with Spool(reader) as spool:
            spool.read()
            spool.sum_into_slots()
            for link_id, rows in (link for group in spool.groups() for link in group):
                if link_id not in columns:
                    zone = reader.links[link_id].zone or zone_named("UTC")
                    columns[link_id] = _Columns(link_id, reader.grid, zone)
                columns[link_id].add(rows)
    return {link_id: link.series() for link_id, link in columns.items()}


def as_count_series(link: LinkSeries) -> CountSeries:
    """Return a link's series the calendar that the mathematics needs."""
    calendar = link.calendar()
    return CountSeries(link.counts, calendar.weekday, calendar.slot_of_day, link.grid.slots_per_day)
