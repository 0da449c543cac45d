"""Choice of mu by cross-validation, with plain KR as one of the candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from model.estimators.examples import Examples
from model.estimators.kernel import Array, Neighborhood

if TYPE_CHECKING:
    from sklearn.model_selection import KFold

DROP_RATIO = 1.1  # after two folds, candidates whose error exceeds the least by this factor are dropped


class MuChoice(NamedTuple):
    """The mu of least cross-validated error, and the metric learnt with it."""

    mu: float
    mean_metric: Array  # (d, d), mean over the folds
    beats_plain_kr: bool


def choose_mu(
    examples: Examples,
    neighborhood: Neighborhood,
    candidates: Sequence[float],
    folds: KFold,
    learn: Callable[[Examples, float], Array],
    report: Callable[[str], None],
) -> MuChoice:
    """Choose the candidate with the least error in cross-validation.

    Parameters
    ----------
    candidates : sequence of distinct numbers
    learn : callable
        Returns A, (r, d), learnt from examples with a mu.
    report : callable
        Called with a line of progress per candidate and fold.
    """
    identity = np.eye(examples.inputs.shape[1])
    plain_error = 0.0
    errors = dict.fromkeys(candidates, 0.0)
    metrics: dict[float, list[Array]] = {mu: [] for mu in candidates}
    remaining = list(candidates)
    for fold, (training_rows, validation_rows) in enumerate(folds.split(examples.inputs), start=1):
        training, validation = examples.take(training_rows), examples.take(validation_rows)
        error = training.error_on(validation, neighborhood)
        plain_error += error(identity) * len(validation)
        for mu in remaining:
            components = learn(training, mu)
            fold_error = error(components)
            errors[mu] += fold_error * len(validation)
            metrics[mu].append(components.T @ components)
            report(f"fold {fold} of {folds.n_splits}, mu {mu:g}: error {fold_error:.6f}, rank {len(components)}")
        if fold > 1:
            least = min(errors[mu] for mu in remaining)
            remaining = [mu for mu in remaining if errors[mu] <= DROP_RATIO * least]
    best = min(remaining, key=errors.__getitem__)
    return MuChoice(best, np.mean(metrics[best], axis=0), errors[best] < plain_error)
