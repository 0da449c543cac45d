"""The links of an evaluation, and the local days and slots of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries, as_count_series
from app.evaluation.plan import LEAST_TRAIN_DAYS, EvaluationPlan
from app.evaluation.report import NotEvaluated
from model.link_model.lag_window import LagWindow, TrainingSet
from model.link_model.profile import Profile
from model.link_model.series import CountSeries
from model.link_model.training import NotEnoughCounts

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

MOST_NAMED = 12


@dataclass(frozen=True, eq=False)
class DaySplit:
    """A link's training days and, from slot ``cut`` on, its test days."""

    link: LinkSeries
    cut: int
    lags: int
    empty_days: tuple[date, ...] = ()  # days without a count

    @property
    def first_day(self) -> date:
        """Return the first training day."""
        return self.link.grid.start(self.link.first).astimezone(self.link.zone).date()

    @cached_property
    def training_link(self) -> LinkSeries:
        """Return the training days as counts of the link."""
        return replace(self.link, counts=self.link.counts[: self.cut], suspect=self.link.suspect[: self.cut])

    @cached_property
    def series(self) -> CountSeries:
        """Return the series of all slots."""
        return as_count_series(self.link)

    @cached_property
    def training(self) -> CountSeries:
        """Return the slots of the training days."""
        return self.series.head(self.cut)

    @cached_property
    def window(self) -> LagWindow:
        """Return the past slots that a forecast is computed from."""
        return LagWindow(self.lags)

    @cached_property
    def rows(self) -> TrainingSet:
        """Return every whole window of the training days, with the count that followed it."""
        rows = self.window.training_set(self.training.counts)
        if len(rows.y) < 2:
            raise NotEnoughCounts(
                f"{len(rows.y)} whole windows of {len(self.window)} lags in the training days; at least 2 are needed"
            )
        return rows

    @cached_property
    def profile(self) -> Array:
        """Return the training days' profile at every slot."""
        return _profile(self.training).at(self.series.weekday, self.series.slot_of_day)

    @cached_property
    def filled(self) -> Array:
        """Return the counts, with the profile where there is none."""
        return np.where(np.isnan(self.series.counts), self.profile, self.series.counts)

    @cached_property
    def test_slots(self) -> Slots:
        """Return every slot of the test days."""
        return np.arange(self.cut, len(self.series))

    def windows(self, slots: Slots) -> Array:
        """Return the lag windows before some slots; a gap in one is filled with the profile."""
        return np.asarray(self.filled[slots[:, None] - np.array(self.window.lags)])

    def last_week(self) -> Array:
        """Return the count a week before each slot, a gap filled with the profile."""
        return replace(self.series, counts=self.filled).last_week()

    def profile_without_own_day(self) -> Array:
        """Return, for the training slots, the profile of the other training days.

        A profile that includes a day's counts is no fair comparison on that day.
        """
        training = self.training
        day = np.concatenate([[0], np.cumsum(training.weekday[1:] != training.weekday[:-1])])
        out = np.empty(len(training))
        for number in range(int(day[-1]) + 1):
            own = day == number
            others = _profile(training.without(own))
            out[own] = others.at(training.weekday[own], training.slot_of_day[own])
        return out


def _profile(series: CountSeries) -> Profile:
    return Profile.learn(series.counts, series.weekday, series.slot_of_day, series.slots_per_day)


def cut_out(link: LinkSeries, plan: EvaluationPlan) -> DaySplit:
    """Return the days of a plan, gaps where the link has no count; refuse too few days with counts."""
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
        target, source = slice(begin - first, stop - first), slice(begin - link.first, stop - link.first)
        counts[target], suspect[target] = link.counts[source], link.suspect[source]
    known = ~np.isnan(counts)
    empty = [day for day, its in zip(days, slots, strict=True) if not known[its.start - first : its.stop - first].any()]
    _require_days(empty, days[plan.train_days], plan)
    training = counts[: cut - first]
    if np.nanmin(training) == np.nanmax(training):
        raise NotEnoughCounts(f"every count of the training days is {np.nanmin(training):g}; there is nothing to learn")
    return DaySplit(replace(link, first=first, counts=counts, suspect=suspect), cut - first, plan.lags, tuple(empty))


def _require_days(empty: list[date], first_test_day: date, plan: EvaluationPlan) -> None:
    """Refuse a link with counts on fewer training days than a plan may have, or on no test day."""
    n_training = plan.train_days - sum(day < first_test_day for day in empty)
    if n_training < LEAST_TRAIN_DAYS:
        first_day = first_test_day - timedelta(days=plan.train_days)
        raise NotEnoughCounts(
            f"it has counts on {n_training} of the {plan.train_days} training days from {first_day} on; "
            f"at least {LEAST_TRAIN_DAYS} are needed"
        )
    if sum(day >= first_test_day for day in empty) == plan.test_days:
        raise NotEnoughCounts(f"it has no count on the {plan.test_days} test days from {first_test_day} on")


def first_whole_day(link: LinkSeries) -> date:
    """Return the local day of a link's first midnight."""
    day = link.grid.start(link.first).astimezone(link.zone).date()
    return day if link.grid.local_day(day, link.zone).start >= link.first else day + timedelta(days=1)


class Choice(NamedTuple):
    """Links to evaluate, links that cannot be, and notes for the reader of the report."""

    links: list[LinkSeries]
    left_out: list[NotEvaluated]
    notes: list[str]


def choose_links(links: dict[str, LinkSeries], plan: EvaluationPlan) -> Choice:
    """Choose among the links of the files: those that a plan names, a sample, or all, as far as they have the days."""
    wanted = sorted(links) if plan.link_ids is None else plan.link_ids
    if absent := [name for name in wanted if name not in links]:
        raise ValueError(f"no link {', '.join(absent)} in the files; there are {_first_of(sorted(links))}")
    able, left_out, n_empty = [], [], {}
    for link_id in wanted:
        try:
            n_empty[link_id] = len(cut_out(links[link_id], plan).empty_days)
            able.append(links[link_id])
        except NotEnoughCounts as problem:
            left_out.append(NotEvaluated(link_id, str(problem)))
    notes = []
    if plan.sample is not None and plan.sample > len(able):
        notes.append(f"a sample of {plan.sample} was requested; {len(able)} links can be evaluated, and all were taken")
    elif plan.sample is not None:
        drawn = np.random.default_rng(plan.seed).choice(len(able), size=plan.sample, replace=False)
        able = [able[at] for at in sorted(drawn)]
    if kept := [f"{link.link_id} ({n_empty[link.link_id]})" for link in able if n_empty[link.link_id]]:
        notes.append(f"links with days without a count are kept (how many days): {_first_of(kept)}")
    return Choice(able, left_out, notes)


def _first_of(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
