"""A network's training span, walked day by day: each day with the profiles that were known before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.link_model.training import NotEnoughCounts
from model.network_model.base_fit import NormalEquations
from model.network_model.context import ContextSource
from model.network_model.local_memory import LocalMemory
from model.network_model.metric import MetricRows, NetworkMetric, learn_metric
from model.network_model.network import Base, Network, others_at_junction
from model.network_model.plan import NetworkPlan
from model.network_model.profile import NetworkProfile
from model.network_model.remembering import Remembered, network_memory, own_memory
from model.network_model.series import NetworkSeries

Array = NDArray[np.float64]
Slots = NDArray[np.int64]
Report = Callable[[str, int, int], object]

WARM_UP_DAYS = 7  # of profile before a day's rows are learnt from
LEAST_LEARNT_DAYS = 3  # neighbours within a day are barred: of two days, a row between them would have none
YOUNG_DAYS = 7  # with fewer before the held-out days, a link's profile goes on learning while it is judged
JUDGING_LINKS = 3  # every third link judges the metric
LEAST_ROWS = 20  # that a metric is learnt from, or judged by
LEAST_DAY = 0.5  # share of a day's slots that makes it a day of counts


class HeldOutForecasts(NamedTuple):
    """The base's forecasts of the held-out rows."""

    slots: Slots
    places: NDArray[np.float32]  # (n_links, n_rows, rank)
    base: Array  # (n_links, n_rows, n_horizons), in vehicles
    usual: Array
    came: Array
    scale: Array  # (n_links, n_rows)


@dataclass(frozen=True, eq=False)
class NetworkDays:
    """A network's training span, walked day by day."""

    series: NetworkSeries
    plan: NetworkPlan
    report: Report

    def __post_init__(self) -> None:
        if self.cut - self.first < LEAST_LEARNT_DAYS:
            raise NotEnoughCounts(
                f"{self.series.days} days of counts are too few for a network; "
                f"at least {self.plan.held_out_days + LEAST_LEARNT_DAYS + 1} are needed"
            )

    @property
    def has_counts(self) -> NDArray[np.bool_]:
        """Which links have a count at all."""
        return np.asarray(~np.isnan(self.series.counts).all(axis=1))

    @property
    def cut(self) -> int:
        """The held-out days begin with this one."""
        return self.series.days - self.plan.held_out_days

    @property
    def first(self) -> int:
        """The first day whose rows are learnt from: those before it make its profile."""
        return max(1, min(WARM_UP_DAYS, self.cut - LEAST_LEARNT_DAYS))

    @property
    def weekdays(self) -> Slots:
        """Weekday of each day."""
        calendar = self.series.calendar
        return np.asarray(
            calendar.weekday[np.searchsorted(calendar.day - calendar.day[0], np.arange(self.series.days))]
        )

    @property
    def young(self) -> NDArray[np.bool_]:
        """Which links have too few days before the held-out ones."""
        known = ~np.isnan(self.series.by_day[:, : self.cut])
        return np.asarray((known.mean(axis=2) >= LEAST_DAY).sum(axis=1) < YOUNG_DAYS)

    def profile(self, day: int) -> NetworkProfile:
        """Return the profile as it was known before a day."""
        return _profile(self, day)

    def judging_profile(self, day: int) -> NetworkProfile:
        """Return the profile that a held-out day is judged with: of before them all, but for young links."""
        known, now, young = self.profile(self.cut), self.profile(day), self.young[:, None, None]
        return NetworkProfile(
            np.where(young, now.expected_counts, known.expected_counts),
            np.where(young, now.by_day_type, known.by_day_type),
        )

    def slots_of(self, day: int) -> Slots:
        """Return the slots of a day."""
        calendar = self.series.calendar
        return np.flatnonzero(calendar.day - calendar.day[0] == day)

    def source(self, profile: NetworkProfile) -> ContextSource:
        """Return what rows are made from, with a profile."""
        series = self.series
        junction = others_at_junction(series.junction)
        return ContextSource(series.counts, series.calendar, profile, junction, series.upstream, self.plan.parts)

    def targets(self, source: ContextSource, slots: Slots, horizon: int) -> Array:
        """Return the counts that rows are to forecast, in units of the links' scales; NaN past the end."""
        last = len(self.series.calendar)
        to_come = slots + horizon - 1
        return source.standardised(np.where(to_come < last, to_come, -1))

    def equations(self) -> tuple[list[NormalEquations], list[NormalEquations], list[NormalEquations]]:
        """Gather the sums of the days before the held-out ones, of those as judged, and of those as learnt."""
        shape = (len(self.series.link_ids), len(self.plan.parts.columns))
        before, held, after = ([NormalEquations(*shape) for _ in range(self.plan.horizons)] for _ in range(3))
        for day in range(self.first, self.series.days):
            self.report("context", day - self.first, self.series.days - self.first)
            self._add(before if day < self.cut else after, day, self.profile(day))
            if day >= self.cut:
                self._add(held, day, self.judging_profile(day))
        for which, sums in (("before", before), ("on", held)):
            if not all(of_horizon.n.any() for of_horizon in sums):
                raise NotEnoughCounts(
                    f"there are too few counts for a network: none that could be learnt from {which} the held-out days"
                )
        return before, held, after

    def _add(self, equations: list[NormalEquations], day: int, profile: NetworkProfile) -> None:
        source, slots = self.source(profile), self.slots_of(day)
        for horizon, sums in enumerate(equations, start=1):
            rows = source.rows(slots, horizon)
            sums.add(rows.columns, self.targets(source, slots, horizon) - rows.usual)

    def metric(self, base: Base) -> NetworkMetric:
        """Learn the metric on rows drawn over links and days; later days of other links judge it."""
        plan = self.plan
        links = np.flatnonzero(self.has_counts)
        judges = links[::JUDGING_LINKS] if len(links) >= JUDGING_LINKS else links
        learners = np.setdiff1d(links, judges) if len(links) >= JUDGING_LINKS else links
        rng = np.random.default_rng(plan.random_state)
        before, held_out = range(self.first, self.cut), range(self.cut, self.series.days)
        learning = self._drawn(rng, before, learners, plan.metric_rows, base)
        judging = self._drawn(rng, held_out, judges, plan.metric_rows // 2, base)
        # Links may have fallen silent, or begun only now: where that leaves nobody to learn or to judge, all do both.
        if len(learning.slots) < LEAST_ROWS:
            learning = self._drawn(rng, before, links, plan.metric_rows, base)
        if len(judging.slots) < LEAST_ROWS:
            judging = self._drawn(rng, held_out, links, plan.metric_rows // 2, base)
        steps, most = count(), len(plan.mu) * (plan.max_iter + 1)
        return learn_metric(
            learning,
            judging,
            exclusion=self.series.calendar.slots_per_day,
            mu=plan.mu,
            max_iter=plan.max_iter,
            n_neighbors=30,
            most_rank=plan.most_rank,
            on_step=lambda: self.report("metric", min(next(steps), most), most),
        )

    def _drawn(self, rng: np.random.Generator, days: range, links: Slots, most: int, base: Base) -> MetricRows:
        found = []
        a_day = -(-most // len(days))
        for day in days:
            source = self.source(self.profile(day) if day < self.cut else self.judging_profile(day))
            slots = self.slots_of(day)
            rows, came = source.rows(slots, 1, links), self.targets(source, slots, 1)[links]
            standardised = base.standardised(rows.columns, 1)
            link, row = np.nonzero(~(np.isnan(came) | np.isnan(standardised).any(axis=2)))
            drawn = rng.choice(len(link), min(a_day, len(link)), replace=False)
            link, row = link[drawn], row[drawn]
            found.append(MetricRows(standardised[link, row], came[link, row], slots[row]))
        return MetricRows(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def remembered(self, base: Base, own: Array, components: Array, *, final: bool) -> Remembered:
        """Walk the days again and keep what the base leaves over."""
        last = self.series.days if final else self.cut
        begin = max(self.first, last - self.plan.memory_days)
        parts = []
        for day in range(begin, last):
            self.report("last memory" if final else "memory", day - begin, last - begin)
            source, slots = self.source(self.profile(day)), self.slots_of(day)
            places, forecasts, usual = self._forecast(source, slots, base, own, components)
            came = self._came(source, slots)
            missed = came - usual - forecasts
            parts.append((places.astype(np.float32), missed.astype(np.float32), slots))
        walked = list(zip(*parts, strict=True))
        slots = np.concatenate(walked[2]) + self.series.first
        return Remembered(np.concatenate(walked[0], axis=1), np.concatenate(walked[1], axis=1), slots)

    def judged(self, base: Base, own: Array, components: Array) -> HeldOutForecasts:
        """Forecast the held-out days by the base."""
        parts = []
        for day in range(self.cut, self.series.days):
            source, slots = self.source(self.judging_profile(day)), self.slots_of(day)
            places, forecasts, usual = self._forecast(source, slots, base, own, components)
            center, scale = source.profile.center[:, None, None], source.profile.scale[:, None, None]
            came = self._came(source, slots)
            parts.append(
                (
                    slots,
                    places.astype(np.float32),
                    np.maximum((usual + forecasts) * scale + center, 0.0),
                    np.maximum(usual * scale + center, 0.0),
                    came * scale + center,
                    np.broadcast_to(scale[:, :, 0], forecasts.shape[:2]),
                )
            )
        walked, *rest = zip(*parts, strict=True)
        return HeldOutForecasts(np.concatenate(walked), *(np.concatenate(part, axis=1) for part in rest))

    def _came(self, source: ContextSource, slots: Slots) -> Array:
        horizons = range(1, self.plan.horizons + 1)
        return np.stack([self.targets(source, slots, horizon) for horizon in horizons], axis=2)

    def _forecast(
        self, source: ContextSource, slots: Slots, base: Base, own: Array, components: Array
    ) -> tuple[Array, Array, Array]:
        """Return where rows lie under the metric, the base's forecasts and what is usual, links first."""
        forecasts, usual = [], []
        for h in range(self.plan.horizons):
            rows = source.rows(slots, h + 1)
            standardised = base.standardised(rows.columns, h + 1)
            if h == 0:
                places = standardised @ components.T
            forecasts.append(
                np.matmul(standardised, (base.weights[h] + own[:, h])[:, :, None])[:, :, 0] + base.offset[h]
            )
            usual.append(rows.usual)
        return places, np.stack(forecasts, axis=2), np.stack(usual, axis=2)

    def finished(self, base: Base, own: Array, components: Array) -> tuple[Network, list[LocalMemory]]:
        """Put together the network as of the end of the span, and each link's memory."""
        past = self.remembered(base, own, components, final=True)
        series = self.series
        profile = self.profile(series.days)
        network = Network(
            series.link_ids,
            series.junction,
            series.upstream,
            self.plan.parts,
            NetworkProfile(profile.expected_counts.astype(np.float32), profile.by_day_type.astype(np.float32)),
            base,
            components,
            network_memory(past, self.plan),
            series.holidays,
        )
        return network, [own_memory(past, link, self.plan) for link in range(len(series.link_ids))]


@lru_cache(maxsize=16)
def _profile(days: NetworkDays, day: int) -> NetworkProfile:
    first = max(0, day - days.plan.memory_days)
    return NetworkProfile.learn(days.series.by_day[:, first:day], days.weekdays[first:day])


def counts_from(series: NetworkSeries, first: int, horizons: int) -> Array:
    """Return the counts of each slot from ``first`` on and of those after it, (n_links, n_slots, horizons)."""
    padded = np.concatenate([series.counts, np.full((len(series.counts), horizons), np.nan)], axis=1)
    slots = np.arange(first, series.counts.shape[1])
    return np.asarray(padded[:, slots[:, None] + np.arange(horizons)])
