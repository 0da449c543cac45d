"""The local days and slots of a link that an evaluation uses, and why a link may not have them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries, as_count_series
from app.evaluation.plan import LEAST_TRAIN_DAYS, EvaluationPlan
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


class Days(NamedTuple):
    """A link's slots from its first training day to its last test day; the test days begin at ``cut``."""

    first_day: date
    link: LinkSeries
    cut: int
    empty: list[date]  # days without a count

    @property
    def learnt(self) -> LinkSeries:
        """The training days."""
        return replace(self.link, counts=self.link.counts[: self.cut], suspect=self.link.suspect[: self.cut])


def cut_out(link: LinkSeries, plan: EvaluationPlan) -> Days:
    """Take the days a plan asks for, gaps where the link has no count; refuse too few days with counts."""
    first_day = plan.first_day or first_whole_day(link)
    try:
        days = [first_day + timedelta(days=n) for n in range(plan.train_days + plan.test_days)]
        slots = [link.grid.local_day(day, link.zone) for day in days]
    except OverflowError:
        raise NotEnoughCounts(f"the calendar ends within the days from {first_day} on") from None
    first, cut, end = slots[0].start, slots[plan.train_days].start, slots[-1].stop
    counts, suspect = np.full(end - first, np.nan), np.zeros(end - first, dtype=np.bool_)
    begin, stop = max(first, link.first), min(end, link.first + len(link))
    if begin < stop:
        here, there = slice(begin - first, stop - first), slice(begin - link.first, stop - link.first)
        counts[here], suspect[here] = link.counts[there], link.suspect[there]
    known = ~np.isnan(counts)
    empty = [day for day, its in zip(days, slots, strict=True) if not known[its.start - first : its.stop - first].any()]
    _require_days(empty, days[plan.train_days], plan)
    learnt = counts[: cut - first]
    if np.nanmin(learnt) == np.nanmax(learnt):
        raise NotEnoughCounts(f"every count of the training days is {np.nanmin(learnt):g}; there is nothing to learn")
    return Days(first_day, replace(link, first=first, counts=counts, suspect=suspect), cut - first, empty)


def _require_days(empty: list[date], first_test_day: date, plan: EvaluationPlan) -> None:
    """Refuse a link with counts on fewer training days than a plan may have, or on no test day."""
    learnt = plan.train_days - sum(day < first_test_day for day in empty)
    if learnt < LEAST_TRAIN_DAYS:
        first_day = first_test_day - timedelta(days=plan.train_days)
        raise NotEnoughCounts(
            f"it has counts on {learnt} of the {plan.train_days} training days from {first_day} on; "
            f"at least {LEAST_TRAIN_DAYS} are needed"
        )
    if sum(day >= first_test_day for day in empty) == plan.test_days:
        raise NotEnoughCounts(f"it has no count on the {plan.test_days} test days from {first_test_day} on")


def first_whole_day(link: LinkSeries) -> date:
    """Return the local day of a link's first midnight."""
    day = link.grid.start(link.first).astimezone(link.zone).date()
    return day if link.grid.local_day(day, link.zone).start >= link.first else day + timedelta(days=1)
