"""Aggregate the forecasts of experts on the test days of real links, slot by slot, as the counts come in.

The experts are NETWORK with profiles refreshed every night, KR_SML on 45 lags, the link's own profile,
refreshed every night from the days before, its last count, and the profile scaled by the latest counts.
Weights and intervals are warmed up on the held-out days of training, with the forecasts of models that
were learnt from the days before these. A regret at horizon h is known h slots after its forecast.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries
from app.evaluation.days import DaySplit
from benchmarks.network_trial import Trial, refreshed_nightly
from model.aggregation.experts import RECENT, ExpertInputs, faded
from model.aggregation.experts import forecast_experts as forecasts_of_experts
from model.aggregation.intervals import LEVELS
from model.aggregation.state import replay
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.link_model.training import TrainingResult, train
from model.link_model.training_plan import TrainingPlan
from model.network_model.training import NetworkResult

Array = NDArray[np.float64]

LAGS = 45


class Experts(NamedTuple):
    """Forecasts of the scored links from each slot of the held-out and the test days on.

    Parameters
    ----------
    first, test_start : int
        The first slot that is forecast, and the first of the test days.
    expected : (n_links, n_slots, n_horizons, n_experts) array
        The first horizon of a slot is the slot itself.
    profile : (n_links, n_slots, slots_per_day) array
        The link's own profile of the next 24 hours.
    actual : (n_links, n_slots) array
    seconds_a_slot : float
        CPU time of all experts for a slot of all links, many slots at once. Slot by slot they would cost more.
    """

    first: int
    test_start: int
    expected: Array
    profile: Array
    actual: Array
    seconds_a_slot: float

    @property
    def n_held_out(self) -> int:
        """Number of slots by which weights are warmed up."""
        return self.test_start - self.first


def train_on_lags(link: LinkSeries, test_start: int) -> TrainingResult:
    """Train KR_SML on the slots of a link before a slot, which is given by its number."""
    span = DaySplit(link, test_start - link.first, LAGS)
    return train(span.training, TrainingPlan(), suspect=span.training_link.suspect)


def train_all_on_lags(trial: Trial, links: Mapping[str, LinkSeries], jobs: int) -> list[TrainingResult]:
    """Train KR_SML on the training days of each scored link."""
    start = trial.whole.first + trial.test_start
    calls = (joblib.delayed(train_on_lags)(links[trial.whole.link_ids[link]], start) for link in trial.scored)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        return list(joblib.Parallel(n_jobs=jobs)(calls))


def forecast_experts(
    trial: Trial, links: Mapping[str, LinkSeries], network: NetworkResult, on_lags: Sequence[TrainingResult]
) -> Experts:
    """Forecast every slot of the held-out and the test days by each expert."""
    first, end, horizons = network.held_out.first, len(trial.whole.calendar), network.network.horizons
    scored, n_held_out = list(trial.scored), trial.test_start - network.held_out.first
    counts = trial.whole.counts[scored]
    models = {name: np.full((len(scored), end - first, horizons), np.nan) for name in ("NETWORK", "KR_SML")}
    models["NETWORK"][:, :n_held_out] = network.held_out.network[scored]
    for row, trained in enumerate(on_lags):
        held_out = trained.held_out_expected[-n_held_out:]
        models["KR_SML"][row, n_held_out - len(held_out) : n_held_out] = held_out
    started = time.process_time()
    models["NETWORK"][:, n_held_out:] = refreshed_nightly(trial, network)[scored]
    for row, (link, trained) in enumerate(zip(scored, on_lags, strict=True)):
        series = links[trial.whole.link_ids[link]]
        offset = series.first - trial.whole.first
        span = DaySplit(series, trial.test_start - offset, LAGS)
        forecasts = trained.model.expected_counts(span.windows(span.test_slots))
        models["KR_SML"][row, span.test_slots + offset - first] = forecasts
    seconds_of_test = time.process_time() - started
    started = time.process_time()
    profile, recent_profile = nightly_profiles(trial, first)
    recent = counts[:, np.arange(first, end)[:, None] + np.arange(-RECENT, 0)]
    expected = forecasts_of_experts(ExpertInputs(profile[:, :, :horizons], recent, recent_profile, models))
    seconds_of_all = time.process_time() - started
    seconds = seconds_of_test / (end - trial.test_start) + seconds_of_all / (end - first)
    return Experts(first, trial.test_start, expected, profile, counts[:, first:], seconds)


def nightly_profiles(trial: Trial, first: int) -> tuple[Array, Array]:
    """Return, for each slot from ``first`` on, the profile of the next 24 hours and of the latest slots before it.

    A link's profile is learnt every night from all days before.
    """
    calendar, counts = trial.whole.calendar, trial.whole.counts[list(trial.scored)]
    day, end, per_day = calendar.day - calendar.day[0], len(calendar), calendar.slots_per_day
    out = []
    for reach in (np.arange(per_day), np.arange(-RECENT, 0)):
        # Past the end of the data there is nothing to be scored, so any slot will do.
        slots = np.minimum(np.arange(first, end)[:, None] + reach, end - 1)
        out.append((slots, np.empty((len(counts), end - first, len(reach)))))
    for number in range(int(day[first]), int(day[-1]) + 1):
        of_day, known = np.flatnonzero(day[first:] == number), int(np.searchsorted(day, number))
        for row, of_link in enumerate(counts):
            past = of_link[:known], calendar.weekday[:known], calendar.slot_of_day[:known], per_day
            learnt = Profile.learn(*past)
            for slots, values in out:
                values[row, of_day] = learnt.at(calendar.weekday[slots[of_day]], calendar.slot_of_day[slots[of_day]])
    return out[0][1], out[1][1]


class Aggregated(NamedTuple):
    """What the aggregate expected, (n_links, n_slots, n_horizons), and its intervals and weights.

    ``lower`` and ``upper`` are (n_levels, n_links, n_slots, n_horizons), ``weights`` (…, n_experts).
    """

    expected: Array
    lower: Array
    upper: Array
    weights: Array
    seconds_a_slot: float


def aggregate(expected: Array, actual: Array, bands: Sequence[Bands | None]) -> Aggregated:
    """Aggregate the experts' forecasts slot by slot, each from the counts before it."""
    started = time.process_time()
    done = replay(expected, actual, bands)
    ends = [done.factors.around(done.expected, done.below, done.above, level) for level in LEVELS]
    seconds = (time.process_time() - started) / expected.shape[1]
    lower, upper = np.moveaxis(np.array(ends), 1, 0)
    return Aggregated(done.expected, lower, upper, done.weights, seconds)


def to_profile(experts: Experts, aggregated: Aggregated, slot_minutes: float) -> Array:
    """Return the RMSE on the test days to that of the link's profile, (n_links, n_horizons), for 24 hours ahead.

    Beyond the last horizon of the experts the aggregate's deviation from the profile fades.
    """
    profile = experts.profile[:, experts.n_held_out :]
    near, actual = aggregated.expected[:, experts.n_held_out :], experts.actual[:, experts.n_held_out :]
    horizons = profile.shape[2]
    forecasts = faded(near, profile, horizons, slot_minutes)
    ratios = np.empty((len(actual), horizons))
    for ahead in range(horizons):
        counts = actual[:, ahead:]
        errors = [root_mean_square(of[:, : counts.shape[1], ahead] - counts) for of in (forecasts, profile)]
        ratios[:, ahead] = errors[0] / errors[1]
    return ratios


def root_mean_square(errors: Array) -> Array:
    """Return the root of the mean square of each link's errors, (n_links, n_slots), that are known."""
    return np.asarray(np.sqrt(np.nanmean(errors**2, axis=1)))


def geometric_mean(ratios: Array) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))
