"""One metric for the whole network, learnt by KR_SML from rows of many links."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from model.estimators.descent import Step
from model.estimators.kr_sml import KR_SML

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

SPREAD = 3.0  # of standardised rows before learning, so that typical distances are a few bandwidths


class MetricRows(NamedTuple):
    """Rows of links and slots for learning a metric."""

    columns: Array  # (n, n_columns), standardised
    targets: Array  # (n,), the counts that followed, in units of the links' scales
    slots: Slots  # (n,)


class _ReportingKRSML(KR_SML):
    """KR_SML that calls ``on_step`` after each step."""

    on_step: Callable[[], object]

    def _report_step(self, number: int, step: Step) -> None:
        self.on_step()


class NetworkMetric(NamedTuple):
    """A learnt metric, with the chosen mu and number of steps."""

    components: Array  # (rank, n_columns)
    mu: float | None
    n_iter: int


def learn_metric(
    training: MetricRows,
    validation: MetricRows,
    *,
    exclusion: int,
    mu: Sequence[float],
    max_iter: int,
    n_neighbors: int,
    most_rank: int,
    on_step: Callable[[], object],
) -> NetworkMetric:
    """Learn a metric for kernel regression of the count.

    Validation rows, by which mu and the number of steps are chosen, are of later days and other links
    than training rows. A metric of higher rank is reduced to its leading directions.
    """
    spread = SPREAD / np.sqrt(training.columns.shape[1])
    rows, targets, slots = (np.concatenate(pair) for pair in zip(training, validation, strict=True))
    estimator = _ReportingKRSML(
        n_neighbors=n_neighbors,
        standardize=False,
        mu=tuple(mu),
        max_iter=max_iter,
        exclusion=exclusion,
        early_stopping=len(validation.slots),
    )
    estimator.on_step = on_step
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the steps are limited on purpose
        estimator.fit(rows * spread, targets, positions=slots)
    return NetworkMetric(
        leading_directions(estimator.components_ * spread, most_rank),
        getattr(estimator, "mu_", None),
        int(estimator.n_iter_),
    )


def leading_directions(components: Array, most: int) -> Array:
    """Return at most ``most`` leading directions of a metric A.T @ A."""
    _, lengths, directions = np.linalg.svd(components, full_matrices=False)
    kept = max(1, min(most, int((lengths > 1e-9 * max(lengths[0], 1e-300)).sum())))
    return np.asarray(lengths[:kept, None] * directions[:kept])
