"""A link's counts as an unbroken run of slots, in which a missing count is a gap and never a zero."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.core.holidays import public_holidays
from app.core.slots import EPOCH, Calendar, SlotGrid, zone_named
from app.counts.importers.reader import CountReader
from app.counts.importers.slot_sums import FileRows
from app.counts.importers.spool import Spool
from app.counts.queries import CountRows, as_rows, counts_by_link, stored_span
from app.counts.tables import QUALITIES, Quality
from app.links.queries import LinkInfo
from model.link_model.series import CountSeries
from model.network_model.series import HOLIDAY, NetworkCalendar

SUSPECT = QUALITIES.index(Quality.SUSPECT)

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinkSeries:
    """Counts of one link from slot number ``first`` on; NaN is a gap.

    Suspect counts are in ``counts`` as well; training leaves them out.
    """

    link_id: str
    grid: SlotGrid
    zone: ZoneInfo
    first: int
    counts: NDArray[np.float64]
    suspect: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or self.counts.shape != self.suspect.shape:
            raise ValueError(f"link {self.link_id}: counts {self.counts.shape} and suspect {self.suspect.shape} differ")

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def slots(self) -> range:
        """Return the numbers of the slots."""
        return range(self.first, self.first + len(self))

    @property
    def gaps(self) -> int:
        """Return how many slots have no count."""
        return int(np.isnan(self.counts).sum())

    def calendar(self) -> Calendar:
        """Return the local weekday and slot of the day of each slot."""
        return self.grid.calendar(self.first, len(self), self.zone)


def series_of_files(*readers: CountReader) -> dict[str, LinkSeries]:
    """Build the series of all links, from one file or several; a link without a single count has none.

    Rows are summed into the slots of the readers' grid. A later count for a slot replaces the earlier; a link's zone
    is that of the first file it is in.
    """
    if len(grids := {reader.grid for reader in readers}) > 1:
        raise ValueError(f"slots of {', '.join(sorted(f'{g.slot_minutes}' for g in grids))} minutes cannot be joined")
    counts: dict[str, list[FileRows]] = {}
    zones: dict[str, ZoneInfo] = {}
    for reader in readers:
        with Spool(reader) as spool:
            spool.read()
            spool.sum_into_slots()
            for link_id, rows in (link for group in spool.groups() for link in group):
                counts.setdefault(link_id, []).append(rows)
                zones.setdefault(link_id, reader.links[link_id].zone or zone_named("UTC"))
    series = {}
    for link_id, parts in counts.items():
        rows = np.concatenate(parts)
        slots = rows["start"] // (60 * reader.grid.slot_minutes)
        span = range(int(slots.min()), int(slots.max()) + 1)
        series[link_id] = _series(link_id, reader.grid, zones[link_id], span, slots, rows["count"], rows["quality"])
    return series


def stored_series(session: Session, link: LinkInfo, first: int | None = None, last: int | None = None) -> LinkSeries:
    """Build the series of every slot that starts from ``first`` to ``last``, both included, in Unix seconds.

    A bound that is given is kept, with gaps up to it; one that is None is the link's oldest or
    newest count. A link without a count has an empty series where a bound is missing.
    """
    oldest, newest = (first, last) if first is not None and last is not None else stored_span(session, link.link_key)
    begin, end = oldest if first is None else first, newest if last is None else last
    if begin is None or end is None:
        return series_of(link, as_rows([]), range(0))
    rows = counts_by_link(session, [link.link_key], begin, end)[link.link_key]
    return series_of(link, rows, slots_between(link, begin, end))


def slots_between(link: LinkInfo, first: int, last: int) -> range:
    """Return the numbers of a link's slots that start from ``first`` to ``last``, both included, in Unix seconds."""
    return range(-(-first // link.slot_seconds), last // link.slot_seconds + 1)


def series_of(link: LinkInfo, rows: CountRows, slots: range) -> LinkSeries:
    """Build the series of consecutive slots, by number, from rows of one link that lie in them."""
    numbers = rows[:, 1] // link.slot_seconds
    return _series(link.link_id, link.grid, link.zone, slots, numbers, rows[:, 2], rows[:, 3])


def _series(
    link_id: str, grid: SlotGrid, zone: ZoneInfo, span: range, slots: Integers, counts: Integers, qualities: Integers
) -> LinkSeries:
    series, suspect = np.full(len(span), np.nan), np.zeros(len(span), dtype=np.bool_)
    series[slots - span.start] = counts  # of several for one slot, NumPy keeps the last
    suspect[slots - span.start] = qualities == SUSPECT
    return LinkSeries(link_id, grid, zone, span.start, series, suspect)


def as_count_series(link: LinkSeries) -> CountSeries:
    """Return a link's series with the calendar that the mathematics needs."""
    calendar = link.calendar()
    return CountSeries(link.counts, calendar.weekday, calendar.slot_of_day, link.grid.slots_per_day)


def network_calendar(grid: SlotGrid, zone: ZoneInfo, first: int, n: int, holidays: str) -> NetworkCalendar:
    """Return the calendar of n slots from number ``first`` on; a public holiday of a region counts as a Sunday.

    ``holidays`` is the region, as `app.core.holidays.holiday_region` returns it, or empty.
    """
    calendar = grid.calendar(first, n, zone)
    weekday = calendar.weekday.copy()
    if holidays:
        known, days = public_holidays(holidays), np.unique(calendar.day)
        free = days[[date.fromordinal(int(day) + EPOCH.toordinal()) in known for day in days]]
        weekday[np.isin(calendar.day, free)] = HOLIDAY
    return NetworkCalendar(weekday, calendar.slot_of_day, calendar.day, grid.slots_per_day)
