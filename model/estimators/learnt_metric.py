"""What MLKR and KR_SML share: the choice of mu, held-out rows, and the fit around a descent."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from model.estimators.descent import Descent, Loss, OnEvaluation, Step, descend, factor
from model.estimators.examples import Examples, TooFewRows, as_positions
from model.estimators.kernel import Array, Neighborhood
from model.estimators.kr import KR
from model.estimators.mu_choice import choose_mu
from model.estimators.parameters import number, one_of, refusal, whole_number

if TYPE_CHECKING:
    from sklearn.model_selection import KFold

Solver = Literal["proximal", "paper"]
Mu = float | Sequence[float] | Literal["auto"]
RandomState = int | np.random.RandomState | None

MU_CANDIDATES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
MU_FOR_FEW_ROWS = 1e-3


class LearntMetric(KR):
    """Kernel regression under a metric that a descent learns from the training rows."""

    def __init__(
        self,
        *,
        n_neighbors: int,
        bandwidth: float,
        standardize: bool | Literal["auto"],
        mu: Mu,
        cv: int,
        solver: Solver,
        alpha: float,
        max_iter: int,
        tol: float,
        exclusion: int,
        early_stopping: int | None,
        random_state: RandomState,
        verbose: bool,
    ) -> None:
        super().__init__(n_neighbors=n_neighbors, bandwidth=bandwidth, standardize=standardize, verbose=verbose)
        self.mu = mu
        self.cv = cv
        self.solver = solver
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.exclusion = exclusion
        self.early_stopping = early_stopping
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        positions: ArrayLike | None = None,
        on_evaluation: OnEvaluation | None = None,
    ) -> Self:
        """Learn the metric, then keep all rows, projected, as the memory.

        Parameters
        ----------
        X : (n, d) array-like, finite
        y : (n,) array-like, finite
        positions : (n,) array-like of whole numbers, optional
            Which slot each row belongs to; by default rows are consecutive. ``exclusion`` counts
            in these, and the last rows are the last by these.
        on_evaluation : callable, optional
            Called before each evaluation of the loss; an exception that it raises ends the fit.
        """
        one_of(self, "solver", ("proximal", "paper"))
        number(self, "alpha", positive=True)
        number(self, "tol", positive=False)
        whole_number(self, "max_iter", at_least=0)
        whole_number(self, "cv", at_least=2)
        check_random_state(self.random_state)
        candidates = self._candidates()
        exclusion = whole_number(self, "exclusion", at_least=0, at_most=2**60)
        prepared = self._prepare(X, y)
        n = len(prepared.targets)
        if n < 2:
            raise ValueError(f"{type(self).__name__}: n_samples={n}; learning a metric needs at least 2 rows")
        like = Neighborhood(prepared.neighborhood.n_neighbors, prepared.neighborhood.bandwidth, exclusion)
        spread = float(prepared.targets.std())
        in_order = as_positions(positions, n)
        examples = Examples(prepared.inputs, prepared.targets / (spread if spread > 0.0 else 1.0), in_order)
        if positions is not None:
            examples = examples.take(np.argsort(in_order, kind="stable"))
        if self.early_stopping is None:
            mu, descent = self._descend(examples, like, candidates, on_evaluation)
        else:
            mu, descent = self._descend_by_held_out(examples, like, candidates, on_evaluation)
        components = factor(descent.components.T @ descent.components)
        self._warn(descent, len(components))
        self.mu_ = mu
        self.n_iter_ = descent.n_iter
        self.converged_ = descent.converged
        self.objective_history_ = np.array(descent.objectives)
        self.held_out_history_ = np.array(descent.held_out_errors)
        return self._keep(components, prepared)

    @abstractmethod
    def _steps(self, loss: Loss, start: Array, mu: float) -> Iterator[Step]:
        """Walk from a metric, (d, d), towards the least of loss + mu Tr(M)."""

    def _descend(
        self, examples: Examples, like: Neighborhood, candidates: Sequence[float], on_evaluation: OnEvaluation | None
    ) -> tuple[float, Descent]:
        loss = self._loss(examples, like, on_evaluation)
        start = np.eye(examples.inputs.shape[1])
        mu = candidates[0]
        if len(candidates) > 1:
            try:
                folds, learn = self._folds(examples), self._learn_fold(like, on_evaluation)
                choice = choose_mu(examples, like, candidates, folds, learn, self._say)
            except TooFewRows:  # the whole has neighbours enough, its folds have not
                mu = self._mu_for_few_rows(candidates)
            else:
                mu = choice.mu
                if not choice.beats_plain_kr:
                    self._say("plain KR has the least error in cross-validation and is kept")
                    return mu, descend(self._steps(loss, start, mu), 0, report=self._report)._replace(converged=True)
                if self.solver == "proximal":
                    start = choice.mean_metric
        return mu, descend(self._steps(loss, start, mu), self.max_iter, report=self._report)

    def _descend_by_held_out(
        self, examples: Examples, like: Neighborhood, candidates: Sequence[float], on_evaluation: OnEvaluation | None
    ) -> tuple[float, Descent]:
        held = whole_number(self, "early_stopping", at_least=1)
        n = len(examples)
        if held > n - 2:
            raise refusal(self, "early_stopping", held, f"at most {n - 2}: 2 of {n} rows must be left to learn from")
        learnt_from, held_out = examples.take(slice(0, n - held)), examples.take(slice(n - held, n))
        error = learnt_from.error_on(held_out, like)
        loss = self._loss(learnt_from, like, on_evaluation)
        tried: list[tuple[float, Descent]] = []
        for mu in candidates:
            self._say(f"mu {mu:g}")
            steps = self._steps(loss, np.eye(examples.inputs.shape[1]), mu)
            tried.append((mu, descend(steps, self.max_iter, error, self._report)))
        return min(tried, key=lambda mu_and_descent: mu_and_descent[1].held_out_errors[-1])

    def _learn_fold(self, like: Neighborhood, on_evaluation: OnEvaluation | None) -> Callable[[Examples, float], Array]:
        def learn(examples: Examples, mu: float) -> Array:
            loss = self._loss(examples, like, on_evaluation)
            return descend(self._steps(loss, np.eye(examples.inputs.shape[1]), mu), self.max_iter).components

        return learn

    def _loss(self, examples: Examples, like: Neighborhood, on_evaluation: OnEvaluation | None) -> Loss:
        loss = examples.loss(like, self.solver == "paper")
        if on_evaluation is None:
            return loss

        def watched(components: Array) -> tuple[float, Array]:
            on_evaluation()
            return loss(components)

        return watched

    def _folds(self, examples: Examples) -> KFold:
        # Loaded where mu is chosen by folds: it brings all of scikit-learn's measures, a fifth of a second.
        from sklearn.model_selection import KFold

        if len(examples) < 2 * self.cv:
            raise TooFewRows(f"{len(examples)} rows are too few for {self.cv} folds")
        if self.exclusion > 0:
            return KFold(self.cv)  # neighbouring slots stay in one fold
        return KFold(self.cv, shuffle=True, random_state=check_random_state(self.random_state))

    def _candidates(self) -> tuple[float, ...]:
        """Return the different values mu may take."""
        if isinstance(self.mu, str) and self.mu == "auto":
            return MU_CANDIDATES
        if isinstance(self.mu, str):
            raise refusal(self, "mu", self.mu, "'auto', a finite number of at least 0, or several of them")
        values = np.ravel(np.asarray(self.mu, dtype=object)).tolist()
        if not values:
            raise refusal(self, "mu", self.mu, "'auto', a finite number of at least 0, or several of them")
        return tuple(dict.fromkeys(number(self, "mu", value, positive=False) for value in values))

    def _mu_for_few_rows(self, candidates: Sequence[float]) -> float:
        return MU_FOR_FEW_ROWS if MU_FOR_FEW_ROWS in candidates else candidates[0]

    def _warn(self, descent: Descent, rank: int) -> None:
        if not descent.converged:
            warnings.warn(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps before the objective "
                f"settled within tol={self.tol}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        if rank == 0:
            warnings.warn(
                f"{type(self).__name__} learnt a metric of rank 0, under which all rows are alike; "
                f"lower mu={self.mu} or alpha={self.alpha}",
                UserWarning,
                stacklevel=3,
            )

    def _say(self, line: str) -> None:
        if self.verbose:
            print(f"{type(self).__name__}: {line}")

    def _report(self, number: int, step: Step) -> None:
        self._say(f"step {number}: objective {step.objective:.6f}, rank {len(step.components)}")
