"""The days of a link: those that are learnt from, and those that are forecast with the true past."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries, as_count_series
from model.link_model.lag_window import LagWindow, TrainingSet
from model.link_model.profile import Profile
from model.link_model.series import CountSeries
from model.link_model.training import NotEnoughCounts

Array = NDArray[np.float64]
Slots = NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """A link's training days and, from slot ``cut`` on, its test days."""

    series: CountSeries
    suspect: NDArray[np.bool_]
    cut: int
    window: LagWindow

    @classmethod
    def of(cls, link: LinkSeries, cut: int, lags: int) -> Span:
        """Prepare a link's slots, of which those before ``cut`` are learnt from."""
        return cls(as_count_series(link), link.suspect, cut, LagWindow(lags))

    @cached_property
    def learnt(self) -> CountSeries:
        """The training days."""
        return self.series.head(self.cut)

    @cached_property
    def rows(self) -> TrainingSet:
        """Every whole window of the training days, and the count that followed it."""
        rows = self.window.training_set(self.learnt.counts)
        if len(rows.y) < 2:
            raise NotEnoughCounts(
                f"{len(rows.y)} whole windows of {len(self.window)} lags in the training days; at least 2 are needed"
            )
        return rows

    @cached_property
    def usual(self) -> Array:
        """The training days' profile at every slot."""
        return _profile(self.learnt).at(self.series.weekday, self.series.slot_of_day)

    @cached_property
    def filled(self) -> Array:
        """The counts, with the profile where there is none."""
        return np.where(np.isnan(self.series.counts), self.usual, self.series.counts)

    @cached_property
    def test_slots(self) -> Slots:
        """Every slot of the test days."""
        return np.arange(self.cut, len(self.series))

    def windows(self, slots: Slots) -> Array:
        """Return the lag windows before some slots; a gap in one is filled with the profile."""
        return np.asarray(self.filled[slots[:, None] - np.array(self.window.lags)])

    def last_week(self) -> Array:
        """Return the count a week before each slot, a gap filled with the profile."""
        return replace(self.series, counts=self.filled).last_week()

    def usual_without_own_day(self) -> Array:
        """Return, for the training slots, the profile of the other training days.

        A profile that has seen a day is no yardstick for that day.
        """
        learnt = self.learnt
        day = np.concatenate([[0], np.cumsum(learnt.weekday[1:] != learnt.weekday[:-1])])
        out = np.empty(len(learnt))
        for number in range(int(day[-1]) + 1):
            own = day == number
            others = _profile(learnt.without(own))
            out[own] = others.at(learnt.weekday[own], learnt.slot_of_day[own])
        return out


def _profile(series: CountSeries) -> Profile:
    return Profile.learn(series.counts, series.weekday, series.slot_of_day, series.slots_per_day)
