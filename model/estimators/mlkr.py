"""MLKR: metric learning for kernel regression, by gradient descent on the transformation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from model.estimators.descent import Loss, Step, constant_transformation_steps, transformation_steps
from model.estimators.kernel import Array
from model.estimators.learnt_metric import LearntMetric, Mu, RandomState, Solver


class MLKR(LearntMetric):
    """Kernel regression under the metric M = A.T @ A, where A is learnt by descent (equations 8 and 9).

    The objective is the mean squared leave-one-out error of the standardised targets.

    Parameters
    ----------
    n_neighbors, bandwidth, standardize, verbose
        As for :class:`~model.KR`; verbose also prints a line per step.
    mu : float, sequence of floats or "auto", default=0.0
        MLKR has no penalty. A mu above zero adds one on the trace of M, as in
        :class:`~model.KR_SML`, for comparison.
    cv : int, default=5
        Number of folds to choose from several mu.
    solver : "proximal" or "paper", default="proximal"
        "proximal" backtracks until the objective decreases (on A the proximal step is the gradient
        step); "paper" takes steps of constant ``alpha``.
    alpha : float, default=0.1
        Step length of the "paper" solver, for the mean over rows of standardised targets.
    max_iter : int, default=200
    tol : float, default=1e-3
        "proximal" stops when five steps decrease the objective by less than ``tol`` each, relative to
        the objective or to a thousandth of the targets' variance if that is more; "paper" when
        the objective changes by at most ``tol``.
    exclusion : int, default=0
        Number of positions on either side of a row that are excluded from its neighbours while
        learning; for windows of a time series at least a day of slots, 0 for unordered rows.
    early_stopping : int or None, default=None
        Hold out this many last rows and keep the earliest step whose squared error on them is
        within two per cent of the least. The start, which is plain KR, is a candidate too. The
        fitted model then uses all rows.
    random_state : int, RandomState or None, default=0
        Seed for shuffling the folds.

    Attributes
    ----------
    metric_, components_, rank_, mean_, scale_, standardized_
        As for :class:`~model.KR`, learnt.
    mu_ : float
    n_iter_ : int
        Number of steps that lead to the metric.
    converged_ : bool
        Whether the solver converged or the held-out error ended it, and not ``max_iter``.
    objective_history_ : (n_iter_ + 1,) array
    held_out_history_ : array
        Mean squared error on the held-out rows after each step; empty without ``early_stopping``.
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 30,
        bandwidth: float = 1.0,
        standardize: bool | Literal["auto"] = "auto",
        mu: Mu = 0.0,
        cv: int = 5,
        solver: Solver = "proximal",
        alpha: float = 0.1,
        max_iter: int = 200,
        tol: float = 1e-3,
        exclusion: int = 0,
        early_stopping: int | None = None,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_neighbors=n_neighbors,
            bandwidth=bandwidth,
            standardize=standardize,
            mu=mu,
            cv=cv,
            solver=solver,
            alpha=alpha,
            max_iter=max_iter,
            tol=tol,
            exclusion=exclusion,
            early_stopping=early_stopping,
            random_state=random_state,
            verbose=verbose,
        )

    def _steps(self, loss: Loss, start: Array, mu: float) -> Iterator[Step]:
        if self.solver == "paper":
            return constant_transformation_steps(loss, start, mu, self.alpha, self.tol)
        return transformation_steps(loss, start, mu, self.tol)
