"""Training of one link: from a series with gaps to a model, its intervals and its held-out accuracy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from model.error_measures import Measure, coverage, geh_pass_share, mare, rmse, skill, wape
from model.estimators.descent import OnEvaluation
from model.estimators.fixed_point import FixedPoint
from model.estimators.kernel import Array, Neighborhood
from model.estimators.kr import KR
from model.estimators.kr_pca import KR_PCA
from model.estimators.kr_sml import KR_SML
from model.estimators.mlkr import MLKR
from model.link_model.detector_health import Health, examine
from model.link_model.intervals import Bands
from model.link_model.lag_window import LagWindow, TrainingSet
from model.link_model.profile import Profile
from model.link_model.series import CountSeries, Slots
from model.link_model.trained_model import TrainedModel, level_of
from model.link_model.training_plan import TrainingPlan

ESTIMATORS: dict[str, type[KR]] = {"KR": KR, "KR_PCA": KR_PCA, "MLKR": MLKR, "KR_SML": KR_SML}
LEVEL_SHARES = (0.0, 0.25, 0.5)
MIN_TRAINING_DAYS = 2


class NotEnoughCounts(ValueError):
    """Raised for a link with too few counts to learn from."""


class ReferenceModel(NamedTuple):
    """Another trained model, to be measured on the same held-out slots.

    Its positions are counted from slot ``first`` of the series. Where its memory covers held-out days,
    windows within a day of a slot are excluded from the slot's forecast.
    """

    model: TrainedModel
    first: int


class TrainingResult(NamedTuple):
    """A model, what training chose, and its accuracy and that of others on the same held-out slots.

    ``held_out_expected`` has the forecasts of the slots of the held-out days by a model of the days before,
    (n_slots, n_horizons), NaN where there is none. ``forecasts`` has what was measured: the forecasts of the same
    slots by method, one slot ahead.
    """

    model: TrainedModel
    health: Health
    held_out: dict[str, dict[str, Measure]]  # by method, then by measure, one slot ahead
    mu: float | None
    n_iter: int | None
    held_out_expected: Array
    forecasts: dict[str, Array]


def train(
    series: CountSeries,
    plan: TrainingPlan | None = None,
    capacity: float | None = None,
    suspect: NDArray[np.bool_] | None = None,
    others: Mapping[str, Array] | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> TrainingResult:
    """Train one link.

    Suspect counts are not used for learning or choosing. All held-out counts are scored, suspect or
    not, from windows of stored counts.

    Parameters
    ----------
    series : CountSeries
        The whole training span. Its last days are held out for choosing, and are in the final memory.
    plan : TrainingPlan, optional
    capacity : float, optional
        Vehicles per slot that the link is designed for, for detector health.
    suspect : (n,) array of bool, optional
        Counts known to be suspect; detector health finds others.
    others : mapping of str to (n,) array, optional
        Other methods' forecasts of the slots of the series, one slot ahead, NaN where there is none,
        by their name in ``held_out``; measured on the same held-out slots.
    on_evaluation : callable, optional
        Called before each evaluation of a descent's loss; an exception that it raises ends the training.
    """
    plan = plan or TrainingPlan()
    data, health = _prepare(series, plan, capacity, suspect)
    clean, rows, held_out_start = data.clean, data.rows, data.held_out_start
    n_training = int((rows.positions < held_out_start).sum())
    shares = data.level_shares()
    estimator = data.fit(shares[0], on_evaluation)
    validation_model = data.model(estimator.components_, shares, until=held_out_start)
    expected = validation_model.expected_counts(rows.X[n_training:])
    observed = continuations(clean.counts, rows.positions[n_training:], plan.horizons)
    bands = Bands.learn(expected, observed, plan.level)
    model = replace(data.model(estimator.components_, shares, until=len(series)), bands=bands)
    held_out_expected = data.held_out_expected(validation_model)
    forecasts = {"candidate": held_out_expected[:, 0]} | data.forecasts(others or {})
    held_out = measure_methods(series.counts[held_out_start:], forecasts, 1440 / series.slots_per_day)
    held_out["candidate"]["coverage"] = cross_coverage(
        expected, observed, rows.positions[n_training:], series, plan.level
    )
    chosen = getattr(estimator, "mu_", None), getattr(estimator, "n_iter_", None)
    return TrainingResult(model, health, held_out, *chosen, held_out_expected, forecasts)


def forecast_methods(
    series: CountSeries,
    others: Mapping[str, Array],
    plan: TrainingPlan | None = None,
    capacity: float | None = None,
    suspect: NDArray[np.bool_] | None = None,
) -> dict[str, Array]:
    """Return what `train` would measure except its own model: the forecasts of the held-out slots by method.

    Arguments are those of `train`.
    """
    data, _ = _prepare(series, plan or TrainingPlan(), capacity, suspect)
    return data.forecasts(others)


def forecast_reference(series: CountSeries, held_out_start: int, reference: ReferenceModel) -> Array:
    """Return another model's forecasts of the slots of a series, (n_slots, n_horizons).

    NaN before the held-out days, and where its window has a gap.
    """
    windows = reference.model.window.training_set(series.counts)
    held = windows.positions >= held_out_start
    forecasts = np.full((len(series), len(reference.model.level_shares)), np.nan)
    if held.any():
        positions = windows.positions[held]
        forecasts[positions] = reference.model.expected_counts_excluding(
            windows.X[held], positions - reference.first, series.slots_per_day
        )
    return forecasts


def _prepare(
    series: CountSeries, plan: TrainingPlan, capacity: float | None, suspect: NDArray[np.bool_] | None
) -> tuple[_TrainingData, Health]:
    """Return the prepared training data and its health; raise NotEnoughCounts if there is too little."""
    health = examine(series if suspect is None else series.without(suspect), capacity)
    if suspect is not None:
        health = health._replace(suspect=health.suspect | suspect)
    clean = series.without(health.suspect)
    window = LagWindow(plan.lags)
    rows = window.training_set(clean.counts)
    held_out_start = len(series) - plan.held_out_days * series.slots_per_day
    n_training = int((rows.positions < held_out_start).sum())
    least = MIN_TRAINING_DAYS * series.slots_per_day
    if not health.enough:
        raise NotEnoughCounts(next(verdict.reason for verdict in health.verdicts if verdict.name == "too_few"))
    if n_training < least or n_training == len(rows.y):
        raise NotEnoughCounts(
            f"{n_training} whole windows before the held-out days and {len(rows.y) - n_training} in them; "
            f"at least {least} and 1 are needed"
        )
    return _TrainingData(series, clean, window, rows, held_out_start, plan), health


@dataclass(frozen=True)
class _TrainingData:
    """One link's training span, prepared."""

    series: CountSeries
    clean: CountSeries
    window: LagWindow
    rows: TrainingSet
    held_out_start: int  # the held-out days begin here
    plan: TrainingPlan

    def statistics(self, until: int) -> tuple[float, float]:
        """Return mean and standard deviation of the counts before a slot, without suspect ones."""
        counts = self.clean.counts[:until]
        spread = float(np.nanstd(counts))
        return float(np.nanmean(counts)), spread if spread > 0.0 else 1.0

    def model(self, components: Array, shares: Array, until: int) -> TrainedModel:
        """Return a model whose memory is the windows, and their continuations, of the slots before ``until``."""
        center, scale = self.statistics(until)
        kept = self.rows.positions < until
        scaled = (self.rows.X[kept] - center) / scale
        counts = self.clean.head(until).counts
        continued = (continuations(counts, self.rows.positions[kept], self.plan.horizons) - center) / scale
        continued -= level_of(scaled, self.window)[:, None] * shares
        calendar = self.series.head(until)
        return TrainedModel(
            algorithm=self.plan.algorithm,
            window=self.window,
            neighborhood=Neighborhood(self.plan.n_neighbors, self.plan.bandwidth),
            center=center,
            scale=scale,
            components=components,
            memory=FixedPoint.of(scaled @ components.T),
            continuations=FixedPoint.of(continued),
            positions=self.rows.positions[kept].astype(np.int32),
            level_shares=shares,
            profile=Profile.learn(counts, calendar.weekday, calendar.slot_of_day, calendar.slots_per_day),
        )

    def level_shares(self) -> Array:
        """Choose the share of the level for each horizon, by plain KR's error on the held-out days."""
        held = self.rows.positions >= self.held_out_start
        observed = continuations(self.clean.counts, self.rows.positions[held], self.plan.horizons)
        errors = []
        for share in LEVEL_SHARES:
            shares = np.full(self.plan.horizons, share)
            plain_kr = self.model(np.eye(len(self.window)), shares, until=self.held_out_start)
            errors.append(np.nanmean((plain_kr.expected_counts(self.rows.X[held]) - observed) ** 2, axis=0))
        return np.asarray(np.array(LEVEL_SHARES)[np.argmin(errors, axis=0)])

    def fit(self, share: float, on_evaluation: OnEvaluation | None) -> KR:
        """Fit the estimator one slot ahead; learnt metrics use the held-out days for early stopping."""
        center, scale = self.statistics(self.held_out_start)
        X, y = (self.rows.X - center) / scale, (self.rows.y - center) / scale
        parameters: dict[str, Any] = {
            "n_neighbors": self.plan.n_neighbors,
            "bandwidth": self.plan.bandwidth,
            "standardize": False,  # all lags of a link share one unit
        }
        estimator = ESTIMATORS[self.plan.algorithm]
        if not issubclass(estimator, (MLKR, KR_SML)):
            before = self.rows.positions < self.held_out_start
            return estimator(**parameters).fit(X[before], y[before])
        parameters |= {
            "exclusion": int(self.plan.exclusion_days * self.series.slots_per_day),
            "early_stopping": int((self.rows.positions >= self.held_out_start).sum()),
            "max_iter": self.plan.max_iter,
        }
        if estimator is KR_SML:
            parameters["mu"] = tuple(self.plan.mu)
        target = y - share * level_of(X, self.window)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the plan limits the steps on purpose
            return estimator(**parameters).fit(X, target, positions=self.rows.positions, on_evaluation=on_evaluation)

    def forecasts(self, others: Mapping[str, Array]) -> dict[str, Array]:
        """Return forecasts of the held-out slots, one slot ahead, by plain KR, profile, last week and others."""
        slots = np.arange(self.held_out_start, len(self.series))
        plain_kr = self.model(np.eye(len(self.window)), np.zeros(self.plan.horizons), until=self.held_out_start)
        return {
            "KR": self.held_out_expected(plain_kr)[:, 0],
            "profile": self._profile_at(slots),
            "last_week": self.series.last_week()[slots],
        } | {method: expected[slots] for method, expected in others.items()}

    def held_out_expected(self, model: TrainedModel) -> Array:
        """Return a model's forecasts of the held-out slots, (n_slots, n_horizons), NaN where its window has a gap."""
        windows = self.window.training_set(self.series.counts)  # suspect counts included, as when serving
        held = windows.positions >= self.held_out_start
        expected = np.full((len(self.series) - self.held_out_start, self.plan.horizons), np.nan)
        expected[windows.positions[held] - self.held_out_start] = model.expected_counts(windows.X[held])
        return expected

    def _profile_at(self, positions: Slots) -> Array:
        before = self.clean.head(self.held_out_start)
        profile = Profile.learn(before.counts, before.weekday, before.slot_of_day, before.slots_per_day)
        return profile.at(self.series.weekday[positions], self.series.slot_of_day[positions])


def measure_methods(counts: Array, forecasts: Mapping[str, Array], minutes: float) -> dict[str, dict[str, Measure]]:
    """Measure methods, one of them "profile", on the same slots.

    A slot is scored if it has a count, and a forecast by every method that has any. The measures count the slots that
    were left out.
    """
    known = [~np.isnan(expected) for expected in forecasts.values() if not np.isnan(expected).all()]
    actual = np.where(np.all(known, axis=0), counts, np.nan)
    return {
        method: {
            "rmse": rmse(actual, expected),
            "mare": mare(actual, expected),
            "wape": wape(actual, expected),
            "geh_pass_share": geh_pass_share(actual, expected, minutes),
            "skill": skill(actual, expected, forecasts["profile"]),
        }
        for method, expected in forecasts.items()
    }


def cross_coverage(expected: Array, observed: Array, positions: Slots, series: CountSeries, level: float) -> Measure:
    """Measure coverage one slot ahead by cross-validation: odd days with bands learnt from even ones, and vice versa.

    ``expected`` and ``observed`` are (n, n_horizons); ``positions`` are their first slots in the series.
    """
    odd = positions // series.slots_per_day % 2 == 1
    lower, upper = np.full(len(odd), np.nan), np.full(len(odd), np.nan)
    for fold in (odd, ~odd):
        if min(fold.sum(), (~fold).sum()) * (1.0 - level) < 2.0:
            continue  # too few errors on one side to learn from
        ends = Bands.learn(expected[~fold, :1], observed[~fold, :1], level).around(expected[fold, :1])
        lower[fold], upper[fold] = ends[0][:, 0], ends[1][:, 0]
    return coverage(observed[:, 0], lower, upper)


def continuations(counts: Array, positions: Slots, horizons: int) -> Array:
    """Return the counts from each position on, NaN past the end or at a gap, (n, horizons)."""
    padded = np.concatenate([counts, np.full(horizons, np.nan)])
    return np.asarray(padded[positions[:, None] + np.arange(horizons)])
