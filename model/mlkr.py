"""MLKR: metric learning for kernel regression, by gradient descent on the transformation."""

from __future__ import annotations

from typing import Literal

import numpy as np

from model.descent import Descent, constant_transformation_steps, descend, transformation_steps
from model.kernel import Neighborhood
from model.learnt_metric import Examples, LearntMetric, Solver


class MLKR(LearntMetric):
    """Kernel regression under the metric M = A.T @ A, A learnt by descent (equations 8 and 9).

    There is no penalty: the objective is the mean squared leave-one-out error of the
    standardised targets.

    Parameters
    ----------
    n_neighbors, bandwidth, standardize, verbose
        As for :class:`~model.KR`.
    solver : "proximal" or "paper", default="proximal"
        "proximal" backtracks until the objective falls (with no penalty its proximal step is the
        gradient step); "paper" takes steps of constant ``alpha``.
    alpha : float, default=0.1
        Step length of the "paper" solver, for the mean over rows of standardised targets.
    max_iter : int, default=200
    tol : float, default=1e-3
        "proximal" stops when five steps bring a relative decrease of less than ``tol`` each,
        "paper" when the objective changes by at most ``tol``.
    exclusion : int, default=0
        How many positions on either side of a row may not be its neighbours while learning; for
        windows of a time series at least a day of slots. 0 for unordered rows.
    early_stopping : int or None, default=None
        Hold out this many last rows and keep the step with the least error on them; the start,
        which is plain KR, is always a candidate. The memory then holds all rows.
    random_state : int, RandomState or None, default=0
        Here without effect; the descent is deterministic.

    Attributes
    ----------
    metric_, components_, rank_, mean_, scale_, standardized_
        As for :class:`~model.KR`, learnt.
    n_iter_ : int
        How many steps lead to the metric.
    converged_ : bool
    objective_history_ : (n_iter_ + 1,) array
    held_out_history_ : array
        Mean squared error on the held-out rows, a value a step; empty without ``early_stopping``.
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 30,
        bandwidth: float = 1.0,
        standardize: bool | Literal["auto"] = "auto",
        solver: Solver = "proximal",
        alpha: float = 0.1,
        max_iter: int = 200,
        tol: float = 1e-3,
        exclusion: int = 0,
        early_stopping: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_neighbors=n_neighbors,
            bandwidth=bandwidth,
            standardize=standardize,
            solver=solver,
            alpha=alpha,
            max_iter=max_iter,
            tol=tol,
            exclusion=exclusion,
            early_stopping=early_stopping,
            random_state=random_state,
            verbose=verbose,
        )

    def _descend(self, examples: Examples, held_out: Examples | None, like: Neighborhood) -> Descent:
        learnt_from = examples.take(slice(0, len(examples) - len(held_out))) if held_out else examples
        error = learnt_from.error_on(held_out, like) if held_out else None
        start = np.eye(examples.inputs.shape[1])
        if self.solver == "paper":
            loss = learnt_from.loss(like, factor_two=True)
            steps = constant_transformation_steps(loss, start, self.alpha, self.tol)
        else:
            steps = transformation_steps(learnt_from.loss(like), start, self.tol)
        return descend(steps, self.max_iter, error, self._report)
