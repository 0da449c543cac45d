"""How each method is run: under the paper's settings, or as the product trains it."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from app.evaluation.days import Span
from app.evaluation.plan import PAPER_BANDWIDTH, PAPER_NEIGHBORS, PAPER_STEPS, EvaluationPlan, Method
from model import KR, KR_PCA, MLKR
from model.estimators.kernel import Barred, Memory, Neighborhood, estimate
from model.link_model.intervals import Bands
from model.link_model.training import train

Array = NDArray[np.float64]
# A count of 1 is inside an interval that ends at 0.9999999999999998, and 1e-17 vehicles are none.
DECIMALS = 9


class SlotForecasts(NamedTuple):
    """Expected counts of consecutive slots and the ends of their intervals; NaN where none was made."""

    expected: Array
    lower: Array
    upper: Array


class Run(NamedTuple):
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
    span: Span

    @classmethod
    def fit(cls, method: Method, span: Span, neighbors: int = PAPER_NEIGHBORS) -> PaperModel:
        """Fit KR, KR_PCA or MLKR to the training days, MLKR descended to the end."""
        center, spread = float(np.nanmean(span.learnt.counts)), float(np.nanstd(span.learnt.counts))
        scale = spread if spread > 0.0 else 1.0
        X, y = (span.rows.X - center) / scale, (span.rows.y - center) / scale
        if method == "MLKR":
            return cls(_descended(X, y, span, neighbors), center, scale, span)
        kinds: dict[str, type[KR]] = {"KR": KR, "KR_PCA": KR_PCA}
        estimator = kinds[method](n_neighbors=neighbors, bandwidth=PAPER_BANDWIDTH, standardize=False)
        return cls(estimator.fit(X, y), center, scale, span)

    def expected(self, windows: Array) -> Array:
        """Return the expected counts after some windows; never below zero."""
        return self._counts(np.asarray(self.estimator.predict((windows - self.center) / self.scale)))

    def expected_without(self, exclusion: int) -> Array:
        """Return the expected count of each training row, without the rows of the slots around it."""
        rows = self.span.rows
        projected = self.estimator.transform((rows.X - self.center) / self.scale)
        like = Neighborhood(self.estimator.n_neighbors, self.estimator.bandwidth)
        alone = Barred(rows.positions, rows.positions, exclusion).leaves_none()
        barred = Barred(rows.positions[~alone], rows.positions, exclusion)
        out = np.full(len(rows.y), np.nan)
        targets = (rows.y - self.center) / self.scale
        if not alone.all():
            out[~alone] = estimate(Memory(projected), targets, projected[~alone], like, barred)
        return self._counts(out)

    def _counts(self, estimates: Array) -> Array:
        return np.asarray(np.maximum(estimates * self.scale + self.center, 0.0))


def _descended(X: Array, y: Array, span: Span, neighbors: int) -> MLKR:
    estimator = MLKR(
        n_neighbors=neighbors,
        bandwidth=PAPER_BANDWIDTH,
        standardize=False,
        exclusion=span.series.slots_per_day,
        max_iter=PAPER_STEPS,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is bounded on purpose
        return estimator.fit(X, y, positions=span.rows.positions)


def run(method: Method, span: Span, plan: EvaluationPlan) -> Run:
    """Train a method on the training days and forecast every slot."""
    return _run_paper(method, span, plan) if plan.under_the_paper(method) else _run_product(method, span, plan)


def _run_paper(method: Method, span: Span, plan: EvaluationPlan) -> Run:
    started = time.perf_counter()
    model = PaperModel.fit(method, span, plan.neighbors_of(method))
    expected = model.expected(span.windows(span.test_slots))
    seconds = time.perf_counter() - started
    trained = model.expected_without(span.series.slots_per_day)
    # The paper has no intervals: these are the product's, learnt from the leave-one-out errors.
    bands = Bands.learn(trained[:, None], span.rows.y[:, None], plan.training_plan(method).level)
    return Run(
        neighbors=model.estimator.n_neighbors,
        components=model.estimator.components_,
        mu=None,
        n_iter=getattr(model.estimator, "n_iter_", None),
        level_share=0.0,
        seconds=seconds,
        train=_on_all_slots(span, trained, bands),
        test=one_ahead(expected, bands),
    )


def _run_product(method: Method, span: Span, plan: EvaluationPlan) -> Run:
    started = time.perf_counter()
    result = train(span.learnt, plan.training_plan(method), suspect=span.suspect[: span.cut])
    model, bands = result.model, result.model.bands
    assert bands is not None
    expected = model.expected_counts(span.windows(span.test_slots))[:, 0]
    seconds = time.perf_counter() - started
    rows = span.rows
    trained = model.expected_without(rows.X, rows.positions, span.series.slots_per_day)[:, 0]
    return Run(
        neighbors=model.neighborhood.n_neighbors,
        components=model.components,
        mu=result.mu if method == "KR_SML" else None,  # MLKR has no penalty
        n_iter=result.n_iter,
        level_share=float(model.level_shares[0]),
        seconds=seconds,
        train=_on_all_slots(span, trained, bands),
        test=one_ahead(expected, bands),
    )


def run_profile(span: Span, level: float) -> Run:
    """Forecast every slot by the profile of the training days; a training day by that of the other days."""
    started = time.perf_counter()
    trained = span.usual_without_own_day()
    bands = Bands.learn(trained[:, None], span.learnt.counts[:, None], level)
    test = one_ahead(span.usual[span.cut :], bands)
    return Run(time.perf_counter() - started, one_ahead(trained, bands), test)


def _on_all_slots(span: Span, expected: Array, bands: Bands) -> SlotForecasts:
    """Put forecasts of the training rows onto the training slots."""
    out = SlotForecasts(*(np.full(span.cut, np.nan) for _ in range(3)))
    for slots, values in zip(out, one_ahead(expected, bands), strict=True):
        slots[span.rows.positions] = values
    return out


def one_ahead(expected: Array, bands: Bands) -> SlotForecasts:
    """Draw the interval one slot ahead around expected counts, free of what rounding left."""
    first = Bands(bands.level, bands.edges[:1], bands.below[:1], bands.above[:1])
    lower, upper = first.around(expected[:, None])
    return SlotForecasts(*(np.round(values, DECIMALS) for values in (expected, lower[:, 0], upper[:, 0])))
