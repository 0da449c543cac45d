"""Choosing mu by cross-validation: a race of candidates over the folds, plain KR among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from model.estimators.examples import Examples
from model.estimators.kernel import Array, Neighborhood

if TYPE_CHECKING:
    from sklearn.model_selection import KFold

RACE_MARGIN = 1.1  # a candidate this much worse than the best, after two folds, leaves the race


class MuChoice(NamedTuple):
    """The mu of least cross-validated error, and what the folds learnt with it."""

    mu: float
    mean_metric: Array  # (d, d), of the folds' metrics
    beats_plain_kr: bool


def choose_mu(
    examples: Examples,
    like: Neighborhood,
    candidates: Sequence[float],
    folds: KFold,
    learn: Callable[[Examples, float], Array],
    report: Callable[[str], None],
) -> MuChoice:
    """Learn A on all folds but one with each candidate and compare the errors on the one left out.

    Parameters
    ----------
    candidates : sequence of different numbers
    learn : callable
        From examples and a mu to A, (r, d).
    report : callable
        Told a line of progress per candidate and fold.
    """
    identity = np.eye(examples.inputs.shape[1])
    plain = 0.0
    errors = dict.fromkeys(candidates, 0.0)
    metrics: dict[float, list[Array]] = {mu: [] for mu in candidates}
    racing = list(candidates)
    for done, (learnt_rows, judged_rows) in enumerate(folds.split(examples.inputs), start=1):
        learnt_from, judged = examples.take(learnt_rows), examples.take(judged_rows)
        error = learnt_from.error_on(judged, like)
        plain += error(identity) * len(judged)
        for mu in racing:
            components = learn(learnt_from, mu)
            here = error(components)
            errors[mu] += here * len(judged)
            metrics[mu].append(components.T @ components)
            report(f"fold {done} of {folds.n_splits}, mu {mu:g}: error {here:.6f}, rank {len(components)}")
        if done > 1:
            leader = min(errors[mu] for mu in racing)
            racing = [mu for mu in racing if errors[mu] <= RACE_MARGIN * leader]
    best = min(racing, key=errors.__getitem__)
    return MuChoice(best, np.mean(metrics[best], axis=0), errors[best] < plain)
