"""A network of real links whose last days are forecast from the true past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.core.holidays import holiday_region
from app.counts.series import LinkSeries, network_calendar
from model.error_measures import geh_pass_share, rmse, wape
from model.link_model.profile import Profile
from model.network_model.days import NetworkDays
from model.network_model.network import NetworkModel, context_source
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkSeries
from model.network_model.training import NetworkResult

Array = NDArray[np.float64]


def align_counts(links: Mapping[str, LinkSeries]) -> NetworkSeries:
    """Return the counts of all links on one calendar; the part of an id before its last dash is the junction."""
    series = list(links.values())
    first = min(link.first for link in series)
    n = max(link.first + len(link) for link in series) - first
    counts = np.full((len(series), n), np.nan)
    for index, link in enumerate(series):
        sound = np.where(link.suspect, np.nan, link.counts)
        counts[index, link.first - first : link.first - first + len(link)] = sound
    sites = [link.link_id.rpartition("-")[0] or link.link_id for link in series]
    junction = np.unique(sites, return_inverse=True)[1].astype(np.int64)
    zone, grid = series[0].zone, series[0].grid
    holidays = holiday_region(zone.key)
    calendar = network_calendar(grid, zone, first, n, holidays)
    ids = tuple(link.link_id for link in series)
    return NetworkSeries(ids, counts, calendar, junction, ((),) * len(series), first, holidays)


@dataclass(frozen=True)
class Trial:
    """A network, its training days, and the links that are scored."""

    whole: NetworkSeries
    train_days: int
    scored: tuple[int, ...]
    plan: NetworkPlan

    @cached_property
    def test_start(self) -> int:
        """The first slot of the test days."""
        calendar = self.whole.calendar
        return int(np.searchsorted(calendar.day - calendar.day[0], self.train_days))

    @cached_property
    def training(self) -> NetworkSeries:
        """The training days."""
        return self.whole.head(self.test_start)

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """The test slots."""
        return np.arange(self.test_start, len(self.whole.calendar))

    @property
    def actual(self) -> Array:
        """Return the counts of the test slots, (n_links, n_slots)."""
        return self.whole.counts[:, self.test_start :]

    def figures(self, forecasts: Array) -> list[dict[str, float]]:
        """Measure forecasts of the scored links, (n_links, n_slots)."""
        minutes = 1440 / self.whole.calendar.slots_per_day
        out = []
        for link in self.scored:
            actual, expected = self.actual[link], forecasts[link]
            shares = (rmse(actual, expected), wape(actual, expected), geh_pass_share(actual, expected, minutes))
            out.append({name: float(m.value or 0.0) for name, m in zip(("rmse", "wape", "geh"), shares, strict=True)})
        return out


def forecast_test_slots(trial: Trial, result: NetworkResult, *, corrected: bool = True) -> Array:
    """Forecast the test slots with the profiles as of the training days, (n_links, n_slots, n_horizons)."""
    network = result.network
    source = context_source(network, trial.whole.counts, trial.whole.calendar, np.arange(len(network.link_ids)), None)
    rows = [source.rows(trial.slots, horizon) for horizon in range(1, network.horizons + 1)]
    out = np.full((len(network.link_ids), len(trial.slots), network.horizons), np.nan)
    for link, model in enumerate(result.models):
        if model is not None:
            columns = [one.columns[link] for one in rows]
            profile_counts = np.stack([one.profile[link] for one in rows], axis=1)
            out[link] = model.expected_counts(columns, profile_counts, corrected=corrected)
    return out


def refreshed_nightly(trial: Trial, result: NetworkResult) -> Array:
    """Forecast the test slots, each day with profiles learnt from the days before it, (n_links, n_slots, n_horizons).

    Only the scored links are forecast; others are NaN.
    """
    days = NetworkDays(trial.whole, trial.plan)
    horizons = result.network.horizons
    out = np.full((len(trial.whole.link_ids), len(trial.slots), horizons), np.nan)
    for day in range(trial.train_days, trial.whole.days):
        slots = days.slots_of(day)
        network = replace(result.network, profile=days.profile(day))
        source = context_source(
            network, trial.whole.counts, trial.whole.calendar, np.arange(len(network.link_ids)), None
        )
        rows = [source.rows(slots, horizon) for horizon in range(1, horizons + 1)]
        for link in trial.scored:
            model = result.models[link]
            if model is not None:
                fresh = NetworkModel(network, link, model.own, model.memory, model.shares)
                profile = np.stack([one.profile[link] for one in rows], axis=1)
                columns = [one.columns[link] for one in rows]
                out[link, slots - trial.test_start] = fresh.expected_counts(columns, profile)
    return out


def groups_of(trial: Trial) -> dict[str, list[int]]:
    """Divide the scored links into calm, busy and restless ones by their training days."""
    deviations, means = [], []
    for link in trial.scored:
        counts, calendar = trial.training.counts[link], trial.training.calendar
        profile = Profile.learn(counts, calendar.weekday, calendar.slot_of_day, calendar.slots_per_day)
        profile_counts = profile.at(calendar.weekday, calendar.slot_of_day)
        deviations.append(float(np.sqrt(np.nanmean((counts - profile_counts) ** 2)) / np.nanstd(counts)))
        means.append(float(np.nanmean(counts)))
    restless = np.array(deviations) >= np.quantile(deviations, 2 / 3)
    busy = ~restless & (np.array(means) > np.median(np.array(means)[~restless]))
    indices = np.arange(len(deviations))
    return {
        "calm": indices[~restless & ~busy].tolist(),
        "busy": indices[busy].tolist(),
        "restless": indices[restless].tolist(),
    }
