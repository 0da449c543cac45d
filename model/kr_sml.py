"""KR_SML: kernel regression with sparse metric learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from model.descent import Descent, Step, descend, paper_steps, proximal_steps
from model.kernel import Array, Neighborhood
from model.learnt_metric import Examples, LearntMetric, Solver
from model.mu_choice import choose_mu
from model.parameters import check_number, number, whole_number

MU_CANDIDATES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
MU_FOR_FEW_ROWS = 1e-3


class KR_SML(LearntMetric):
    """Kernel regression under a sparse metric M, learnt over the PSD cone (equations 18 to 21).

    The objective is the mean squared leave-one-out error of the standardised targets plus
    ``mu`` Tr(M); the trace drives eigenvalues of M to zero, so that the rank falls by itself.

    Parameters
    ----------
    n_neighbors, bandwidth, standardize, verbose
        As for :class:`~model.KR`.
    mu : float, sequence of floats or "auto", default="auto"
        Weight of the trace. Of several candidates ("auto": :data:`MU_CANDIDATES`) one is chosen by
        cross-validation on the training rows, or by the held-out rows when ``early_stopping`` is
        set; plain KR is a candidate too. The final descent of the "proximal" solver then starts
        from the mean of the folds' metrics. With fewer than two rows a fold, mu is 0.001.
    cv : int, default=5
        How many folds choose mu; contiguous ones when ``exclusion`` is set.
    solver : "proximal" or "paper", default="proximal"
        "proximal" backtracks, and its objective never rises; "paper" follows the paper's listing
        with constant ``alpha`` and stops at ``|change| <= tol``.
    alpha : float, default=0.1
        Step length of the "paper" solver, for the mean over rows of standardised targets: the
        paper's own alpha, which is for a sum over raw targets, times n var(y).
    max_iter, tol, exclusion, early_stopping
        As for :class:`~model.MLKR`.
    random_state : int, RandomState or None, default=0
        Shuffles the folds.

    Attributes
    ----------
    metric_, components_, rank_, mean_, scale_, standardized_
        As for :class:`~model.KR`, learnt.
    mu_ : float
        The mu used. In the paper's units, a sum over raw targets, it is n var(y) times as large.
    n_iter_, converged_, objective_history_, held_out_history_
        As for :class:`~model.MLKR`.

    References
    ----------
    Huang and Sun, "Kernel Regression with Sparse Metric Learning", section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from model import KR_SML
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 6))
    >>> KR_SML(n_neighbors=10, mu=0.01).fit(X, np.sin(3 * X[:, 0])).rank_ < 6
    True
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 30,
        bandwidth: float = 1.0,
        standardize: bool | Literal["auto"] = "auto",
        mu: float | Sequence[float] | Literal["auto"] = "auto",
        cv: int = 5,
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
        self.mu = mu
        self.cv = cv

    def _descend(self, examples: Examples, held_out: Examples | None, like: Neighborhood) -> Descent:
        candidates = self._candidates()
        folds = whole_number(self, "cv", at_least=2)
        start = np.eye(examples.inputs.shape[1])
        if held_out:
            return self._descend_by_held_out(examples, held_out, like, candidates)
        self.mu_ = candidates[0]
        if len(candidates) > 1 and len(examples) < 2 * folds:
            self.mu_ = MU_FOR_FEW_ROWS
        elif len(candidates) > 1:
            choice = choose_mu(examples, like, candidates, self._folds(folds), self._learner(like))
            self.mu_ = choice.mu
            if not choice.beats_plain_kr:
                plain = next(self._steps(examples, like, self.mu_, start))
                return Descent(plain.components, [plain.objective], [], converged=True)
            if self.solver == "proximal":
                start = choice.mean_metric
        return descend(self._steps(examples, like, self.mu_, start), self.max_iter, None, self._report)

    def _descend_by_held_out(
        self, examples: Examples, held_out: Examples, like: Neighborhood, candidates: Sequence[float]
    ) -> Descent:
        learnt_from = examples.take(slice(0, len(examples) - len(held_out)))
        error = learnt_from.error_on(held_out, like)
        start = np.eye(examples.inputs.shape[1])
        best: Descent | None = None
        for mu in candidates:
            descent = descend(self._steps(learnt_from, like, mu, start), self.max_iter, error, self._report)
            if best is None or descent.held_out_errors[-1] < best.held_out_errors[-1]:
                self.mu_, best = mu, descent
        assert best is not None
        return best

    def _candidates(self) -> tuple[float, ...]:
        if isinstance(self.mu, str) and self.mu == "auto":
            return MU_CANDIDATES
        if isinstance(self.mu, (list, tuple, np.ndarray)) and len(self.mu) > 0:
            return tuple(check_number(self, "mu", value, at_least=0.0) for value in self.mu)
        return (number(self, "mu", at_least=0.0),)

    def _folds(self, folds: int) -> KFold:
        if self.exclusion > 0:
            return KFold(folds)  # neighbouring slots stay in one fold
        return KFold(folds, shuffle=True, random_state=check_random_state(self.random_state))

    def _learner(self, like: Neighborhood) -> Callable[[Examples, float], Array]:
        def learn(examples: Examples, mu: float) -> Array:
            identity = np.eye(examples.inputs.shape[1])
            return descend(self._steps(examples, like, mu, identity), self.max_iter).components

        return learn

    def _steps(self, examples: Examples, like: Neighborhood, mu: float, start: Array) -> Iterator[Step]:
        if self.solver == "paper":
            return paper_steps(examples.loss(like, factor_two=True), start, mu, self.alpha, self.tol)
        return proximal_steps(examples.loss(like), start, mu, self.tol)
