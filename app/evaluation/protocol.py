"""Run each method under the paper's settings, or as the product trains it."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from app.evaluation.days import DaySplit
from app.evaluation.plan import PAPER_BANDWIDTH, PAPER_NEIGHBORS, PAPER_STEPS, EvaluationPlan, Method
from model.estimators.kernel import ExcludedRows, Memory, Neighborhood, estimate
from model.estimators.kr import KR
from model.estimators.kr_pca import KR_PCA
from model.estimators.mlkr import MLKR
from model.link_model.intervals import Bands
from model.link_model.training import train

Array = NDArray[np.float64]
# Without rounding, a count of 1 is outside an interval that ends at 0.9999999999999998.
DECIMALS = 9


class SlotForecasts(NamedTuple):
    """Expected counts of consecutive slots and the ends of their intervals; NaN where none was made."""

    expected: Array
    lower: Array
    upper: Array

    @classmethod
    def missing(cls, slots: int) -> SlotForecasts:
        """Return forecasts of slots that have none."""
        return cls(*(np.full(slots, np.nan) for _ in range(3)))


class MethodRun(NamedTuple):
    """A method trained on a link: what it is, and its forecast of each training and test slot."""

    seconds: float
    train: SlotForecasts  # leave-one-out, neighbours within a day barred
    test: SlotForecasts
    neighbors: int | None = None
    components: Array | None = None  # A of the metric on lags, (rank, d)
    mu: float | None = None
    n_iter: int | None = None
    level_share: float | None = None
    chosen: str | None = None  # by `best`


@dataclass(frozen=True)
class PaperModel:
    """An estimator in units of the training counts' mean and standard deviation."""

    estimator: KR
    center: float
    scale: float
    split: DaySplit

    @classmethod
    def fit(cls, method: Method, split: DaySplit, neighbors: int = PAPER_NEIGHBORS) -> PaperModel:
        """Fit KR, KR_PCA or MLKR to the training days, MLKR descended to the end."""
        center, scale = float(np.nanmean(split.training.counts)), float(np.nanstd(split.training.counts)) or 1.0
        X, y = (split.rows.X - center) / scale, (split.rows.y - center) / scale
        settings: dict[str, Any] = {"n_neighbors": neighbors, "bandwidth": PAPER_BANDWIDTH, "standardize": False}
        if method != "MLKR":
            return cls({"KR": KR, "KR_PCA": KR_PCA}[method](**settings).fit(X, y), center, scale, split)
        estimator = MLKR(**settings, exclusion=split.series.slots_per_day, max_iter=PAPER_STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is bounded on purpose
            return cls(estimator.fit(X, y, positions=split.rows.positions), center, scale, split)

    def expected(self, windows: Array) -> Array:
        """Return the expected counts after some windows; never below zero."""
        return self._counts(np.asarray(self.estimator.predict((windows - self.center) / self.scale)))

    def expected_counts_excluding(self, exclusion: int) -> Array:
        """Return the expected count of each training row, without the rows of the slots around it."""
        rows = self.split.rows
        projected = self.estimator.transform((rows.X - self.center) / self.scale)
        like = Neighborhood(self.estimator.n_neighbors, self.estimator.bandwidth)
        isolated = ExcludedRows(rows.positions, rows.positions, exclusion).without_neighbors()
        excluded = ExcludedRows(rows.positions[~isolated], rows.positions, exclusion)
        out = np.full(len(rows.y), np.nan)
        targets = (rows.y - self.center) / self.scale
        if not isolated.all():
            out[~isolated] = estimate(Memory(projected), targets, projected[~isolated], like, excluded)
        return self._counts(out)

    def _counts(self, estimates: Array) -> Array:
        return np.asarray(np.maximum(estimates * self.scale + self.center, 0.0))


def run(method: Method, split: DaySplit, plan: EvaluationPlan) -> MethodRun:
    """Train a method on the training days and forecast every slot."""
    return (_run_paper if plan.under_the_paper(method) else _run_product)(method, split, plan)


def _run_paper(method: Method, split: DaySplit, plan: EvaluationPlan) -> MethodRun:
    started = time.perf_counter()
    model = PaperModel.fit(method, split, plan.neighbors_of(method))
    expected = model.expected(split.windows(split.test_slots))
    seconds = time.perf_counter() - started
    trained = model.expected_counts_excluding(split.series.slots_per_day)
    # The paper has no intervals: these are the product's, learnt from the leave-one-out errors.
    bands = Bands.learn(trained[:, None], split.rows.y[:, None], plan.training_plan(method).level)
    return MethodRun(
        seconds,
        _on_training_slots(split, trained, bands),
        one_ahead(expected, bands),
        neighbors=model.estimator.n_neighbors,
        components=model.estimator.components_,
        n_iter=getattr(model.estimator, "n_iter_", None),
        level_share=0.0,
    )


def _run_product(method: Method, split: DaySplit, plan: EvaluationPlan) -> MethodRun:
    started = time.perf_counter()
    result = train(split.training, plan.training_plan(method), suspect=split.training_link.suspect)
    model, bands = result.model, result.model.bands
    assert bands is not None
    expected = model.expected_counts(split.windows(split.test_slots))[:, 0]
    seconds = time.perf_counter() - started
    trained = model.expected_counts_excluding(split.rows.X, split.rows.positions, split.series.slots_per_day)[:, 0]
    return MethodRun(
        seconds,
        _on_training_slots(split, trained, bands),
        one_ahead(expected, bands),
        neighbors=model.neighborhood.n_neighbors,
        components=model.components,
        mu=result.mu if method == "KR_SML" else None,  # MLKR has no penalty
        n_iter=result.n_iter,
        level_share=float(model.level_shares[0]),
    )


def run_profile(split: DaySplit, level: float) -> MethodRun:
    """Forecast every slot by the profile of the training days; a training day by that of the other days."""
    started = time.perf_counter()
    trained = split.profile_without_own_day()
    bands = Bands.learn(trained[:, None], split.training.counts[:, None], level)
    test = one_ahead(split.profile[split.cut :], bands)
    return MethodRun(time.perf_counter() - started, one_ahead(trained, bands), test)


def _on_training_slots(split: DaySplit, expected: Array, bands: Bands) -> SlotForecasts:
    """Return forecasts of the training slots from those of the training rows."""
    out = SlotForecasts.missing(split.cut)
    for slots, values in zip(out, one_ahead(expected, bands), strict=True):
        slots[split.rows.positions] = values
    return out


def one_ahead(expected: Array, bands: Bands) -> SlotForecasts:
    """Return expected counts with the interval one slot ahead, without what rounding left."""
    first = Bands(bands.level, bands.edges[:1], bands.below[:1], bands.above[:1])
    lower, upper = first.around(expected[:, None])
    return SlotForecasts(*(np.round(values, DECIMALS) for values in (expected, lower[:, 0], upper[:, 0])))
