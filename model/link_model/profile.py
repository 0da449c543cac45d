"""The historical profile: the mean count of a link by weekday and time of day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

DAY_TYPES = [0, 0, 0, 0, 0, 1, 2]  # Monday to Friday alike, Saturday, Sunday
ENOUGH_DAYS = 3  # a cell with fewer days is averaged with its day type
SMOOTHING = (0.25, 0.5, 0.25)  # over neighbouring slots, around midnight within the week


@dataclass(frozen=True)
class Profile:
    """Expected counts by local weekday and slot of the day, (7, slots_per_day)."""

    expected_counts: Array

    @classmethod
    def learn(cls, series: ArrayLike, weekday: Slots, slot_of_day: Slots, slots_per_day: int) -> Profile:
        """Learn a profile from a series with NaN for gaps.

        A cell with fewer than three days is shrunk towards the mean of its day type (Monday to Friday,
        Saturday, Sunday). Without days of that type the mean of the time of day is used instead, and
        without any day the mean of all counts. The week is then smoothed with weights 1-2-1.
        """
        values = np.asarray(series, dtype=np.float64)
        if not values.shape == np.shape(weekday) == np.shape(slot_of_day):
            raise ValueError(
                f"series, weekday and slot_of_day have shapes {values.shape}, {np.shape(weekday)}, "
                f"{np.shape(slot_of_day)}; they must agree"
            )
        known = ~np.isnan(values)
        if not known.any():
            raise ValueError(f"none of the {len(values)} slots has a count; a profile needs at least one")
        cells = np.asarray(weekday)[known] * slots_per_day + np.asarray(slot_of_day)[known]
        shape = (7, slots_per_day)
        sums = np.bincount(cells, weights=values[known], minlength=7 * slots_per_day).reshape(shape)
        days = np.bincount(cells, minlength=7 * slots_per_day).reshape(shape).astype(np.float64)
        everything = sums.sum() / days.sum()
        of_day = _mean_or(sums.sum(axis=0), days.sum(axis=0), everything)
        common = _mean_or(_by_day_type(sums), _by_day_type(days), of_day)[DAY_TYPES]
        shrinkage = np.maximum(ENOUGH_DAYS - days, 0.0)
        week = ((sums + shrinkage * common) / (days + shrinkage)).ravel()
        before, at, after = SMOOTHING
        return cls((before * np.roll(week, 1) + at * week + after * np.roll(week, -1)).reshape(shape))

    def at(self, weekday: Slots, slot_of_day: Slots) -> Array:
        """Return the expected count of each slot."""
        return np.asarray(self.expected_counts[weekday, slot_of_day])


def _by_day_type(cells: NDArray[Any]) -> Array:
    return np.stack([cells[:5].sum(axis=0), cells[5], cells[6]])


def _mean_or(sums: Array, days: Array, default: Array | float) -> Array:
    return np.where(days > 0, sums / np.maximum(days, 1.0), default)
