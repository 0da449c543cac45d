"""KR_SML: kernel regression with sparse metric learning."""

from __future__ import annotations

from collections.abc import Iterator

from model.estimators.descent import Loss, Step, paper_steps, proximal_steps
from model.estimators.kernel import Array
from model.estimators.learnt_metric import LearntMetric


class KR_SML(LearntMetric):
    """Kernel regression under a sparse metric M, learnt over the PSD cone (equations 18 to 21).

    The objective is the mean squared leave-one-out error of the standardised targets plus
    ``mu`` Tr(M). The penalty on the trace drives eigenvalues of M to zero and so reduces the rank.
    Beyond some mu neither rank nor error decreases further: M shrinks as a whole, neighbours stay
    the same and their weights become equal.

    Parameters
    ----------
    n_neighbors, bandwidth, standardize, verbose
        As for :class:`~model.KR`.
    mu : float, sequence of floats or "auto", default="auto"
        Weight of the trace. One of several candidates ("auto": seven from 0.03 to 0.00001) is chosen
        by cross-validation on the training rows, or by the held-out rows when ``early_stopping`` is
        set; plain KR is a candidate too. The final descent of the "proximal" solver then starts from
        the mean of the folds' metrics. With too few rows for folds mu is 0.001 if that is a
        candidate, else the first one.
    cv : int, default=5
        Number of folds to choose mu; they are contiguous when ``exclusion`` is set.
    solver : "proximal" or "paper", default="proximal"
        "proximal" backtracks, so its objective never increases; "paper" is the paper's listing with
        constant ``alpha``, which stops at ``|change| <= tol``.
    alpha : float, default=0.1
        Step length of the "paper" solver, for the mean over rows of standardised targets: the
        paper's own alpha, which is for a sum over raw targets, times n var(y).
    max_iter, tol, exclusion, early_stopping
        As for :class:`~model.MLKR`.
    random_state : int, RandomState or None, default=0
        Seed for shuffling the folds.

    Attributes
    ----------
    metric_, components_, rank_, mean_, scale_, standardized_
        As for :class:`~model.KR`, learnt.
    mu_ : float
        The chosen mu. In the paper's units, a sum over raw targets, it is n var(y) times as large.
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

    def _steps(self, loss: Loss, start: Array, mu: float) -> Iterator[Step]:
        if self.solver == "paper":
            return paper_steps(loss, start, mu, self.alpha, self.tol)
        return proximal_steps(loss, start, mu, self.tol)
