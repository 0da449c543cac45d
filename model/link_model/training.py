"""Training one link: from a gap-marked series to a model, its intervals and its held-out accuracy."""

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
LEAST_DAYS = 2


class NotEnoughCounts(ValueError):
    """A link has too few sound counts to learn from."""


class Rival(NamedTuple):
    """Another trained model, to be measured on the same held-out slots.

    ``first`` is the slot its positions are counted from, itself counted from the start of the series;
    where it has seen held-out days itself, what lies within a day of a slot is kept from it.
    """

    model: TrainedModel
    first: int


class TrainingResult(NamedTuple):
    """A model, how it was arrived at, and its accuracy beside others' on the same held-out slots."""

    model: TrainedModel
    health: Health
    held_out: dict[str, dict[str, Measure]]  # by method, then by measure, one slot ahead
    mu: float | None
    n_iter: int | None


def train(
    series: CountSeries,
    plan: TrainingPlan | None = None,
    capacity: float | None = None,
    suspect: NDArray[np.bool_] | None = None,
    rivals: Mapping[str, Rival] | None = None,
    others: Mapping[str, Array] | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> TrainingResult:
    """Train one link.

    Suspect counts are neither learnt nor chosen from; the held-out counts are scored whether
    suspect or not, from the past as it was stored.

    Parameters
    ----------
    series : CountSeries
        The whole training span; its last days are held out while choosing, then join the memory.
    plan : TrainingPlan, optional
    capacity : float, optional
        Vehicles a slot can pass, for detector health.
    suspect : (n,) array of bool, optional
        Counts already known not to be believed; detector health finds others.
    rivals : mapping of str to Rival, optional
        Models to compare with on the held-out slots, by the name their figures get.
    others : mapping of str to (n,) array, optional
        What other methods say of the slots of the series, one slot ahead, NaN where they say nothing;
        measured on the same held-out slots, by the name their figures get.
    on_evaluation : callable, optional
        Called before each evaluation of a descent's loss; an exception that it raises ends the training.
    """
    plan = plan or TrainingPlan()
    span, health = _prepared(series, plan, capacity, suspect)
    sound, rows, cut = span.sound, span.rows, span.cut
    learnt = int((rows.positions < cut).sum())
    shares = span.level_shares()
    estimator = span.fit(shares[0], on_evaluation)
    judged = span.model(estimator.components_, shares, until=cut)
    expected = judged.expected_counts(rows.X[learnt:])
    came = continuations(sound.counts, rows.positions[learnt:], plan.horizons)
    bands = Bands.learn(expected, came, plan.level)
    model = replace(span.model(estimator.components_, shares, until=len(series)), bands=bands)
    held_out = span.compare(judged, rivals or {}, others or {})
    held_out["candidate"]["coverage"] = cross_coverage(expected, came, rows.positions[learnt:], series, plan.level)
    return TrainingResult(model, health, held_out, getattr(estimator, "mu_", None), getattr(estimator, "n_iter_", None))


def compare(
    series: CountSeries,
    others: Mapping[str, Array],
    plan: TrainingPlan | None = None,
    capacity: float | None = None,
    suspect: NDArray[np.bool_] | None = None,
    rivals: Mapping[str, Rival] | None = None,
) -> dict[str, dict[str, Measure]]:
    """Measure what others say of a link beside plain KR, profile and last week, and train nothing.

    Arguments are as for `train`, and so are the slots that are scored.
    """
    span, _ = _prepared(series, plan or TrainingPlan(), capacity, suspect)
    return span.compare(None, rivals or {}, others)


def _prepared(
    series: CountSeries, plan: TrainingPlan, capacity: float | None, suspect: NDArray[np.bool_] | None
) -> tuple[_Span, Health]:
    """Prepare a span, or say why there is too little in it."""
    health = examine(series if suspect is None else series.without(suspect), capacity)
    if suspect is not None:
        health = health._replace(suspect=health.suspect | suspect)
    sound = series.without(health.suspect)
    window = LagWindow(plan.lags)
    rows = window.training_set(sound.counts)
    cut = len(series) - plan.held_out_days * series.slots_per_day
    learnt = int((rows.positions < cut).sum())
    least = LEAST_DAYS * series.slots_per_day
    if not health.enough:
        raise NotEnoughCounts(next(verdict.reason for verdict in health.verdicts if verdict.name == "too_few"))
    if learnt < least or learnt == len(rows.y):
        raise NotEnoughCounts(
            f"{learnt} whole windows before the held-out days and {len(rows.y) - learnt} in them; "
            f"at least {least} and 1 are needed"
        )
    return _Span(series, sound, window, rows, cut, plan), health


@dataclass(frozen=True)
class _Span:
    """One link's training span, prepared."""

    series: CountSeries
    sound: CountSeries
    window: LagWindow
    rows: TrainingSet
    cut: int  # the held-out days begin here
    plan: TrainingPlan

    def statistics(self, until: int) -> tuple[float, float]:
        """Return mean and standard deviation of the sound counts before a slot."""
        counts = self.sound.counts[:until]
        spread = float(np.nanstd(counts))
        return float(np.nanmean(counts)), spread if spread > 0.0 else 1.0

    def model(self, components: Array, shares: Array, until: int) -> TrainedModel:
        """Remember the windows, and what followed them, of the slots before ``until``."""
        center, scale = self.statistics(until)
        kept = self.rows.positions < until
        scaled = (self.rows.X[kept] - center) / scale
        counts = self.sound.head(until).counts
        followed = (continuations(counts, self.rows.positions[kept], self.plan.horizons) - center) / scale
        followed -= level_of(scaled, self.window)[:, None] * shares
        calendar = self.series.head(until)
        return TrainedModel(
            algorithm=self.plan.algorithm,
            window=self.window,
            neighborhood=Neighborhood(self.plan.n_neighbors, self.plan.bandwidth),
            center=center,
            scale=scale,
            components=components,
            memory=FixedPoint.of(scaled @ components.T),
            continuations=FixedPoint.of(followed),
            positions=self.rows.positions[kept].astype(np.int32),
            level_shares=shares,
            profile=Profile.learn(counts, calendar.weekday, calendar.slot_of_day, calendar.slots_per_day),
        )

    def level_shares(self) -> Array:
        """Choose, horizon by horizon, how much of the level to keep: plain KR's best on the held-out days."""
        held = self.rows.positions >= self.cut
        came = continuations(self.sound.counts, self.rows.positions[held], self.plan.horizons)
        errors = []
        for share in LEVEL_SHARES:
            shares = np.full(self.plan.horizons, share)
            plain = self.model(np.eye(len(self.window)), shares, until=self.cut)
            errors.append(np.nanmean((plain.expected_counts(self.rows.X[held]) - came) ** 2, axis=0))
        return np.asarray(np.array(LEVEL_SHARES)[np.argmin(errors, axis=0)])

    def fit(self, share: float, on_evaluation: OnEvaluation | None) -> KR:
        """Fit the estimator one slot ahead, choosing by the held-out days where it can."""
        center, scale = self.statistics(self.cut)
        X, y = (self.rows.X - center) / scale, (self.rows.y - center) / scale
        parameters: dict[str, Any] = {
            "n_neighbors": self.plan.n_neighbors,
            "bandwidth": self.plan.bandwidth,
            "standardize": False,  # all lags of a link share one unit
        }
        estimator = ESTIMATORS[self.plan.algorithm]
        if not issubclass(estimator, (MLKR, KR_SML)):
            before = self.rows.positions < self.cut
            return estimator(**parameters).fit(X[before], y[before])
        parameters |= {
            "exclusion": int(self.plan.exclusion_days * self.series.slots_per_day),
            "early_stopping": int((self.rows.positions >= self.cut).sum()),
            "max_iter": self.plan.max_iter,
        }
        if estimator is KR_SML:
            parameters["mu"] = tuple(self.plan.mu)
        target = y - share * level_of(X, self.window)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the plan bounds the steps on purpose
            return estimator(**parameters).fit(X, target, positions=self.rows.positions, on_evaluation=on_evaluation)

    def compare(
        self, judged: TrainedModel | None, rivals: Mapping[str, Rival], forecasts: Mapping[str, Array]
    ) -> dict[str, dict[str, Measure]]:
        """Measure candidate, rivals, plain KR, profile, last week and others' forecasts on the same held-out slots.

        A slot is scored when it has a count and every method has a forecast for it; how many had
        none is in the measures.
        """
        slots = np.arange(self.cut, len(self.series))
        stored = self.window.training_set(self.series.counts)  # the past as it was stored, suspect or not
        held = stored.positions >= self.cut
        plain = self.model(np.eye(len(self.window)), np.zeros(self.plan.horizons), until=self.cut)
        others: dict[str, Array] = {}
        for method, model in (("candidate", judged), ("KR", plain)):
            if model is not None:
                others[method] = np.full(len(slots), np.nan)
                others[method][stored.positions[held] - self.cut] = model.expected_counts(stored.X[held])[:, 0]
        others |= {"profile": self._profile_at(slots), "last_week": self.series.last_week()[slots]}
        for method, rival in rivals.items():
            others[method] = self._rival_at(slots, rival)
        others |= {method: expected[slots] for method, expected in forecasts.items()}
        return measured(self.series.counts[slots], others, 1440 / self.series.slots_per_day)

    def _rival_at(self, slots: Slots, rival: Rival) -> Array:
        """Return what another model expects of slots, NaN where its window has a gap."""
        windows = rival.model.window.training_set(self.series.counts)
        held = windows.positions >= self.cut
        forecasts = np.full(len(slots), np.nan)
        if held.any():
            positions = windows.positions[held]
            expected = rival.model.expected_without(windows.X[held], positions - rival.first, self.series.slots_per_day)
            forecasts[positions - self.cut] = expected[:, 0]
        return forecasts

    def _profile_at(self, positions: Slots) -> Array:
        before = self.sound.head(self.cut)
        profile = Profile.learn(before.counts, before.weekday, before.slot_of_day, before.slots_per_day)
        return profile.at(self.series.weekday[positions], self.series.slot_of_day[positions])


def measured(counts: Array, forecasts: Mapping[str, Array], minutes: float) -> dict[str, dict[str, Measure]]:
    """Measure methods, profile among them, on the slots that every method with any forecast has one for."""
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


def cross_coverage(expected: Array, came: Array, positions: Slots, series: CountSeries, level: float) -> Measure:
    """Measure coverage one slot ahead, each day inside bands learnt from the other days' errors.

    ``expected`` and ``came`` are (n, n_horizons), ``positions`` where in the series their first slots lie.
    """
    odd = positions // series.slots_per_day % 2 == 1
    lower, upper = np.full(len(odd), np.nan), np.full(len(odd), np.nan)
    for fold in (odd, ~odd):
        if min(fold.sum(), (~fold).sum()) * (1.0 - level) < 2.0:
            continue  # too few errors on one side to learn from
        ends = Bands.learn(expected[~fold, :1], came[~fold, :1], level).around(expected[fold, :1])
        lower[fold], upper[fold] = ends[0][:, 0], ends[1][:, 0]
    return coverage(came[:, 0], lower, upper)


def continuations(counts: Array, positions: Slots, horizons: int) -> Array:
    """Return the counts from each position on, NaN past the end or at a gap, (n, horizons)."""
    padded = np.concatenate([counts, np.full(horizons, np.nan)])
    return np.asarray(padded[positions[:, None] + np.arange(horizons)])
