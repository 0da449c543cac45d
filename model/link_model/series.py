"""A link's counts on consecutive slots, with the local calendar of these slots."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Slots = NDArray[np.int64]


@dataclass(frozen=True)
class CountSeries:
    """Counts of consecutive slots, NaN where there is none, and each slot's local calendar.

    Parameters
    ----------
    counts : (n,) array
        A gap is NaN, never zero.
    weekday, slot_of_day : (n,) arrays
        Local weekday (Monday is 0) and slot of the local day.
    slots_per_day : int
    """

    counts: Array
    weekday: Slots
    slot_of_day: Slots
    slots_per_day: int

    def __post_init__(self) -> None:
        if not self.counts.shape == self.weekday.shape == self.slot_of_day.shape or self.counts.ndim != 1:
            raise ValueError(
                f"counts, weekday and slot_of_day have shapes {self.counts.shape}, {self.weekday.shape}, "
                f"{self.slot_of_day.shape}; they must be one-dimensional and agree"
            )

    def __len__(self) -> int:
        return len(self.counts)

    def head(self, n: int) -> CountSeries:
        """Return the first n slots."""
        return self.between(0, n)

    def between(self, first: int, end: int) -> CountSeries:
        """Return the slots from ``first`` up to ``end``, which is excluded."""
        part = slice(first, end)
        return replace(self, counts=self.counts[part], weekday=self.weekday[part], slot_of_day=self.slot_of_day[part])

    def last_week(self) -> Array:
        """Return the count of the same local slot a week before each slot, NaN where there is none.

        The local time is compared, so that peaks stay in place across a clock change. Of a local time
        that occurs twice the first slot is used.
        """
        day = np.concatenate([[0], np.cumsum(self.weekday[1:] != self.weekday[:-1])])[: len(self)]
        local = day * self.slots_per_day + self.slot_of_day
        known, first = np.unique(local, return_index=True)
        place = np.minimum(np.searchsorted(known, local - 7 * self.slots_per_day), max(len(known) - 1, 0))
        exists = known[place] == local - 7 * self.slots_per_day if len(self) else np.zeros(0, dtype=bool)
        return np.where(exists, self.counts[first[place]], np.nan)

    def without(self, suspect: NDArray[np.bool_]) -> CountSeries:
        """Return the series with suspect counts replaced by gaps."""
        return replace(self, counts=np.where(suspect, np.nan, self.counts))
