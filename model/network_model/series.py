"""The counts of many links on one calendar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

DAY_TYPES = np.array([0, 0, 0, 0, 0, 1, 2])  # Monday to Friday alike, Saturday, Sunday
HOLIDAY = 6  # a public holiday counts as a Sunday


@dataclass(frozen=True)
class NetworkCalendar:
    """The local calendar of consecutive slots, which all links of a network share.

    Parameters
    ----------
    weekday, slot_of_day : (n,) arrays
        Local weekday (Monday is 0, a public holiday is a Sunday) and slot of the local day.
    day : (n,) array
        Number of the local day, rising by one at each local midnight.
    slots_per_day : int
    """

    weekday: Slots
    slot_of_day: Slots
    day: Slots
    slots_per_day: int

    def __len__(self) -> int:
        return len(self.day)

    @cached_property
    def slot_table(self) -> Slots:
        """Index of the slot by local day and slot of the day, (days, slots_per_day); -1 where there is none.

        Of a local time that occurs twice, when clocks are put back, it is the later slot.
        """
        table = np.full((int(self.day[-1] - self.day[0]) + 1, self.slots_per_day), -1)
        table[self.day - self.day[0], self.slot_of_day] = np.arange(len(self))
        return table

    def days_before(self, slots: Slots, days: int) -> Slots:
        """Return the slot at the same local time some days earlier; -1 where there is none."""
        days_ago = self.day[slots] - self.day[0] - days
        found = self.slot_table[np.maximum(days_ago, 0), self.slot_of_day[slots]]
        return np.where(days_ago < 0, -1, found)


@dataclass(frozen=True)
class NetworkSeries:
    """Counts of links, (n_links, n_slots), NaN where there is none, with the topology of the links.

    Parameters
    ----------
    link_ids : tuple of str
    counts : (n_links, n_slots) array
        Counts to learn from, without suspect ones.
    calendar : NetworkCalendar
    junction : (n_links,) array of int
        Links with the same number end at the same junction; -1 for a link whose junction is unknown.
    upstream : tuple of tuple of int
        For each link the indices of the links that flow into it.
    first : int
        Number of the first slot; slots in memories are counted from number 0.
    holidays : str
        The region whose public holidays the calendar treats as Sundays.
    """

    link_ids: tuple[str, ...]
    counts: Array
    calendar: NetworkCalendar
    junction: Slots
    upstream: tuple[tuple[int, ...], ...]
    first: int = 0
    holidays: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.link_ids), len(self.calendar))
        if self.counts.shape != shape:
            raise ValueError(f"counts have shape {self.counts.shape}; they must have {shape}, links by slots")
        if not len(self.junction) == len(self.upstream) == len(self.link_ids):
            raise ValueError(
                f"junction and upstream have {len(self.junction)} and {len(self.upstream)} entries; "
                f"they must have one for each of {len(self.link_ids)} links"
            )

    @property
    def days(self) -> int:
        """Number of local days that it spans."""
        return int(self.calendar.day[-1] - self.calendar.day[0]) + 1

    @cached_property
    def by_day(self) -> Array:
        """The counts by local day and slot of the day, (n_links, days, slots_per_day)."""
        places = self.calendar.slot_table
        return np.where(places >= 0, self.counts[:, places], np.nan)

    def head(self, slots: int) -> NetworkSeries:
        """Return the series of the first slots."""
        calendar = self.calendar
        cut = NetworkCalendar(
            calendar.weekday[:slots], calendar.slot_of_day[:slots], calendar.day[:slots], calendar.slots_per_day
        )
        return replace(self, counts=self.counts[:, :slots], calendar=cut)
