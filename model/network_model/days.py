"""A network's training span, processed day by day, each day with profiles learnt from the days before it."""

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
from model.network_model.build_memory import MemoryRows, link_memory, network_memory
from model.network_model.context import ContextSource
from model.network_model.local_memory import LocalMemory
from model.network_model.metric import MetricRows, NetworkMetric, learn_metric
from model.network_model.network import Base, Network, others_at_junction
from model.network_model.plan import NetworkPlan
from model.network_model.profile import NetworkProfile
from model.network_model.series import NetworkSeries

Array = NDArray[np.float64]
Slots = NDArray[np.int64]
ReportProgress = Callable[[str, int, int], object]

WARM_UP_DAYS = 7  # of profile before the first day whose rows are learnt from
MIN_TRAINING_DAYS = 3  # neighbours within a day are excluded, so of two days a row between them would have none
SHORT_HISTORY_DAYS = 7  # with fewer before the held-out days, a link's profile is updated during them
VALIDATION_LINK_STEP = 3  # every third link validates the metric
MIN_METRIC_ROWS = 20  # for learning a metric, and for validating it
MIN_DAY_SHARE = 0.5  # share of a day's slots with a count from which it is a day of counts


def _ignore_progress(_what: str, _done: int, _of: int) -> None:
    pass


class BaseForecasts(NamedTuple):
    """The linear base's forecasts of the held-out rows, in vehicles."""

    slots: Slots
    points: NDArray[np.float32]  # (n_links, n_rows, rank)
    base: Array  # (n_links, n_rows, n_horizons)
    profile: Array
    observed: Array
    scale: Array  # (n_links, n_rows)


@dataclass(frozen=True, eq=False)
class NetworkDays:
    """A network's training span, processed day by day."""

    series: NetworkSeries
    plan: NetworkPlan
    report: ReportProgress = _ignore_progress

    def __post_init__(self) -> None:
        if self.held_out_start - self.first_day < MIN_TRAINING_DAYS:
            raise NotEnoughCounts(
                f"{self.series.days} days of counts are too few for a network; "
                f"at least {self.plan.held_out_days + MIN_TRAINING_DAYS + 1} are needed"
            )

    @property
    def has_counts(self) -> NDArray[np.bool_]:
        """Mask of the links with at least one count."""
        return np.asarray(~np.isnan(self.series.counts).all(axis=1))

    @property
    def held_out_start(self) -> int:
        """The first held-out day."""
        return self.series.days - self.plan.held_out_days

    @property
    def first_day(self) -> int:
        """The first day whose rows are learnt from; its profile is learnt from the days before it."""
        return max(1, min(WARM_UP_DAYS, self.held_out_start - MIN_TRAINING_DAYS))

    @property
    def weekdays(self) -> Slots:
        """Weekday of each day."""
        calendar = self.series.calendar
        return np.asarray(
            calendar.weekday[np.searchsorted(calendar.day - calendar.day[0], np.arange(self.series.days))]
        )

    @property
    def has_short_history(self) -> NDArray[np.bool_]:
        """Mask of the links with few days of counts before the held-out ones."""
        known = ~np.isnan(self.series.by_day[:, : self.held_out_start])
        return np.asarray((known.mean(axis=2) >= MIN_DAY_SHARE).sum(axis=1) < SHORT_HISTORY_DAYS)

    def profile(self, day: int) -> NetworkProfile:
        """Return the profile learnt from the days before a day."""
        return _profile(self, day)

    def validation_profile(self, day: int) -> NetworkProfile:
        """Return the profile for a held-out day: that of before all of them, but a current one for short histories."""
        known, now, short = self.profile(self.held_out_start), self.profile(day), self.has_short_history[:, None, None]
        return NetworkProfile(
            np.where(short, now.expected_counts, known.expected_counts),
            np.where(short, now.by_day_type, known.by_day_type),
        )

    def slots_of(self, day: int) -> Slots:
        """Return the slots of a day."""
        calendar = self.series.calendar
        return np.flatnonzero(calendar.day - calendar.day[0] == day)

    def source(self, profile: NetworkProfile) -> ContextSource:
        """Return the data that rows are computed from, with a profile."""
        series = self.series
        junction = others_at_junction(series.junction)
        return ContextSource(series.counts, series.calendar, profile, junction, series.upstream, self.plan.parts)

    def targets(self, source: ContextSource, slots: Slots, horizon: int) -> Array:
        """Return the standardised counts that rows forecast; NaN past the end."""
        last = len(self.series.calendar)
        to_come = slots + horizon - 1
        return source.standardised(np.where(to_come < last, to_come, -1))

    def equations(self) -> tuple[list[NormalEquations], list[NormalEquations], list[NormalEquations]]:
        """Return the sums of the days before the held-out ones, and two of these: for validation and for refitting."""
        shape = (len(self.series.link_ids), len(self.plan.parts.columns))
        before, held, after = ([NormalEquations(*shape) for _ in range(self.plan.horizons)] for _ in range(3))
        for day in range(self.first_day, self.series.days):
            self.report("context", day - self.first_day, self.series.days - self.first_day)
            self._add(before if day < self.held_out_start else after, day, self.profile(day))
            if day >= self.held_out_start:
                self._add(held, day, self.validation_profile(day))
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
            sums.add(rows.columns, self.targets(source, slots, horizon) - rows.profile)

    def metric(self, base: Base) -> NetworkMetric:
        """Learn the metric from a sample of rows, validated on later days of other links."""
        plan = self.plan
        links = np.flatnonzero(self.has_counts)
        validation_links = links[::VALIDATION_LINK_STEP] if len(links) >= VALIDATION_LINK_STEP else links
        training_links = np.setdiff1d(links, validation_links) if len(links) >= VALIDATION_LINK_STEP else links
        rng = np.random.default_rng(plan.random_state)
        before, held_out = range(self.first_day, self.held_out_start), range(self.held_out_start, self.series.days)
        training = self._sample_rows(rng, before, training_links, plan.metric_rows, base)
        validation = self._sample_rows(rng, held_out, validation_links, plan.metric_rows // 2, base)
        # Some links may have counts only before or only in the held-out days; then all links are used for both.
        if len(training.slots) < MIN_METRIC_ROWS:
            training = self._sample_rows(rng, before, links, plan.metric_rows, base)
        if len(validation.slots) < MIN_METRIC_ROWS:
            validation = self._sample_rows(rng, held_out, links, plan.metric_rows // 2, base)
        steps, most = count(), len(plan.mu) * (plan.max_iter + 1)
        return learn_metric(
            training,
            validation,
            exclusion=self.series.calendar.slots_per_day,
            mu=plan.mu,
            max_iter=plan.max_iter,
            n_neighbors=30,
            most_rank=plan.most_rank,
            on_step=lambda: self.report("metric", min(next(steps), most), most),
        )

    def _sample_rows(self, rng: np.random.Generator, days: range, links: Slots, most: int, base: Base) -> MetricRows:
        found = []
        per_day = -(-most // len(days))
        for day in days:
            source = self.source(self.profile(day) if day < self.held_out_start else self.validation_profile(day))
            slots = self.slots_of(day)
            rows, observed = source.rows(slots, 1, links), self.targets(source, slots, 1)[links]
            standardised = base.standardised(rows.columns, 1)
            link, row = np.nonzero(~(np.isnan(observed) | np.isnan(standardised).any(axis=2)))
            drawn = rng.choice(len(link), min(per_day, len(link)), replace=False)
            link, row = link[drawn], row[drawn]
            found.append(MetricRows(standardised[link, row], observed[link, row], slots[row]))
        return MetricRows(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def memory_rows(self, base: Base, own: Array, components: Array, *, final: bool) -> MemoryRows:
        """Compute the projected rows and the residuals of the base for a memory."""
        last = self.series.days if final else self.held_out_start
        begin = max(self.first_day, last - self.plan.memory_days)
        parts = []
        for day in range(begin, last):
            self.report("last memory" if final else "memory", day - begin, last - begin)
            source, slots = self.source(self.profile(day)), self.slots_of(day)
            points, forecasts, profile = self._forecast(source, slots, base, own, components)
            observed = self._observed(source, slots)
            missed = observed - profile - forecasts
            parts.append((points.astype(np.float32), missed.astype(np.float32), slots))
        walked = list(zip(*parts, strict=True))
        slots = np.concatenate(walked[2]) + self.series.first
        return MemoryRows(np.concatenate(walked[0], axis=1), np.concatenate(walked[1], axis=1), slots)

    def forecast_held_out(self, base: Base, own: Array, components: Array) -> BaseForecasts:
        """Forecast the held-out days with the linear base."""
        parts = []
        for day in range(self.held_out_start, self.series.days):
            source, slots = self.source(self.validation_profile(day)), self.slots_of(day)
            points, forecasts, profile = self._forecast(source, slots, base, own, components)
            center, scale = source.profile.center[:, None, None], source.profile.scale[:, None, None]
            observed = self._observed(source, slots)
            parts.append(
                (
                    slots,
                    points.astype(np.float32),
                    np.maximum((profile + forecasts) * scale + center, 0.0),
                    np.maximum(profile * scale + center, 0.0),
                    observed * scale + center,
                    np.broadcast_to(scale[:, :, 0], forecasts.shape[:2]),
                )
            )
        walked, *rest = zip(*parts, strict=True)
        return BaseForecasts(np.concatenate(walked), *(np.concatenate(part, axis=1) for part in rest))

    def _observed(self, source: ContextSource, slots: Slots) -> Array:
        horizons = range(1, self.plan.horizons + 1)
        return np.stack([self.targets(source, slots, horizon) for horizon in horizons], axis=2)

    def _forecast(
        self, source: ContextSource, slots: Slots, base: Base, own: Array, components: Array
    ) -> tuple[Array, Array, Array]:
        """Return the projected rows, the base's forecasts and the profiles, links first."""
        forecasts, profile = [], []
        for h in range(self.plan.horizons):
            rows = source.rows(slots, h + 1)
            standardised = base.standardised(rows.columns, h + 1)
            if h == 0:
                points = standardised @ components.T
            forecasts.append(
                np.matmul(standardised, (base.weights[h] + own[:, h])[:, :, None])[:, :, 0] + base.offset[h]
            )
            profile.append(rows.profile)
        return points, np.stack(forecasts, axis=2), np.stack(profile, axis=2)

    def build_network(self, base: Base, own: Array, components: Array) -> tuple[Network, list[LocalMemory]]:
        """Return the network as of the end of the span, and each link's memory."""
        past = self.memory_rows(base, own, components, final=True)
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
        return network, [link_memory(past, link, self.plan) for link in range(len(series.link_ids))]


@lru_cache(maxsize=16)
def _profile(days: NetworkDays, day: int) -> NetworkProfile:
    first = max(0, day - days.plan.memory_days)
    return NetworkProfile.learn(days.series.by_day[:, first:day], days.weekdays[first:day])


def counts_from(series: NetworkSeries, first: int, horizons: int) -> Array:
    """Return the counts that follow each slot from ``first`` on, its own first, (n_links, n_slots, horizons)."""
    padded = np.concatenate([series.counts, np.full((len(series.counts), horizons), np.nan)], axis=1)
    slots = np.arange(first, series.counts.shape[1])
    return np.asarray(padded[:, slots[:, None] + np.arange(horizons)])
