"""The base class of MLKR and KR_SML: the choice of mu, held-out rows and the fit."""

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
from model.estimators.parameters import invalid_parameter, number, one_of, whole_number

if TYPE_CHECKING:
    from sklearn.model_selection import KFold

Solver = Literal["proximal", "paper"]
Mu = float | Sequence[float] | Literal["auto"]
RandomState = int | np.random.RandomState | None

MU_CANDIDATES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
MU_FOR_FEW_ROWS = 1e-3


class LearntMetric(KR):
    """Kernel regression under a metric that is learnt from the training rows by descent."""

    def __init__(
        self,
        *,
        n_neighbors: int = 30,
        bandwidth: float = 1.0,
        standardize: bool | Literal["auto"] = "auto",
        mu: Mu = "auto",
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
        """Learn the metric, then store all projected rows.

        Parameters
        ----------
        X : (n, d) array-like, finite
        y : (n,) array-like, finite
        positions : (n,) array-like of whole numbers, optional
            The slot of each row; by default rows are consecutive. ``exclusion`` is in these units, and
            ``early_stopping`` holds out the rows with the largest ones.
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
        neighborhood = Neighborhood(prepared.neighborhood.n_neighbors, prepared.neighborhood.bandwidth, exclusion)
        spread = float(prepared.targets.std())
        in_order = as_positions(positions, n)
        examples = Examples(prepared.inputs, prepared.targets / (spread if spread > 0.0 else 1.0), in_order)
        if positions is not None:
            examples = examples.take(np.argsort(in_order, kind="stable"))
        if self.early_stopping is None:
            mu, descent = self._descend(examples, neighborhood, candidates, on_evaluation)
        else:
            mu, descent = self._descend_by_held_out(examples, neighborhood, candidates, on_evaluation)
        components = factor(descent.components.T @ descent.components)
        self._warn(descent, len(components))
        self.mu_ = mu
        self.n_iter_ = descent.n_iter
        self.converged_ = descent.converged
        self.objective_history_ = np.array(descent.objectives)
        self.held_out_history_ = np.array(descent.held_out_errors)
        return self._store_fit(components, prepared)

    @abstractmethod
    def _steps(self, loss: Loss, start: Array, mu: float) -> Iterator[Step]:
        """Yield the steps of a solver that minimises loss + mu Tr(M) from a metric, (d, d)."""

    def _descend(
        self,
        examples: Examples,
        neighborhood: Neighborhood,
        candidates: Sequence[float],
        on_evaluation: OnEvaluation | None,
    ) -> tuple[float, Descent]:
        loss = self._loss(examples, neighborhood, on_evaluation)
        start = np.eye(examples.inputs.shape[1])
        mu = candidates[0]
        if len(candidates) > 1:
            try:
                folds, learn = self._folds(examples), self._learn_fold(neighborhood, on_evaluation)
                choice = choose_mu(examples, neighborhood, candidates, folds, learn, self._print)
            except TooFewRows:  # all rows together have enough neighbours, but folds do not
                mu = self._mu_for_few_rows(candidates)
            else:
                mu = choice.mu
                if not choice.beats_plain_kr:
                    self._print("plain KR has the least error in cross-validation and is kept")
                    return mu, descend(self._steps(loss, start, mu), 0, report=self._report_step)._replace(
                        converged=True
                    )
                if self.solver == "proximal":
                    start = choice.mean_metric
        return mu, descend(self._steps(loss, start, mu), self.max_iter, report=self._report_step)

    def _descend_by_held_out(
        self,
        examples: Examples,
        neighborhood: Neighborhood,
        candidates: Sequence[float],
        on_evaluation: OnEvaluation | None,
    ) -> tuple[float, Descent]:
        n_held_out = whole_number(self, "early_stopping", at_least=1)
        n = len(examples)
        if n_held_out > n - 2:
            raise invalid_parameter(
                self, "early_stopping", n_held_out, f"at most {n - 2}: 2 of {n} rows must be left to learn from"
            )
        training, held_out = examples.take(slice(0, n - n_held_out)), examples.take(slice(n - n_held_out, n))
        error = training.error_on(held_out, neighborhood)
        loss = self._loss(training, neighborhood, on_evaluation)
        trials: list[tuple[float, Descent]] = []
        for mu in candidates:
            self._print(f"mu {mu:g}")
            steps = self._steps(loss, np.eye(examples.inputs.shape[1]), mu)
            trials.append((mu, descend(steps, self.max_iter, error, self._report_step)))
        return min(trials, key=lambda trial: trial[1].held_out_errors[-1])

    def _learn_fold(
        self, neighborhood: Neighborhood, on_evaluation: OnEvaluation | None
    ) -> Callable[[Examples, float], Array]:
        def learn(examples: Examples, mu: float) -> Array:
            loss = self._loss(examples, neighborhood, on_evaluation)
            return descend(self._steps(loss, np.eye(examples.inputs.shape[1]), mu), self.max_iter).components

        return learn

    def _loss(self, examples: Examples, neighborhood: Neighborhood, on_evaluation: OnEvaluation | None) -> Loss:
        loss = examples.loss(neighborhood, self.solver == "paper")
        if on_evaluation is None:
            return loss

        def loss_with_callback(components: Array) -> tuple[float, Array]:
            on_evaluation()
            return loss(components)

        return loss_with_callback

    def _folds(self, examples: Examples) -> KFold:
        # Imported here because it loads all of scikit-learn's metrics, which takes a fifth of a second.
        from sklearn.model_selection import KFold

        if len(examples) < 2 * self.cv:
            raise TooFewRows(f"{len(examples)} rows are too few for {self.cv} folds")
        if self.exclusion > 0:
            return KFold(self.cv)  # not shuffled, so that neighbouring slots are in the same fold
        return KFold(self.cv, shuffle=True, random_state=check_random_state(self.random_state))

    def _candidates(self) -> tuple[float, ...]:
        """Return the distinct candidates for mu."""
        if isinstance(self.mu, str) and self.mu == "auto":
            return MU_CANDIDATES
        if isinstance(self.mu, str):
            raise invalid_parameter(self, "mu", self.mu, "'auto', a finite number of at least 0, or several of them")
        values = np.ravel(np.asarray(self.mu, dtype=object)).tolist()
        if not values:
            raise invalid_parameter(self, "mu", self.mu, "'auto', a finite number of at least 0, or several of them")
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
                f"{type(self).__name__} learnt a metric of rank 0, under which all rows are equally near; "
                f"lower mu={self.mu} or alpha={self.alpha}",
                UserWarning,
                stacklevel=3,
            )

    def _print(self, line: str) -> None:
        if self.verbose:
            print(f"{type(self).__name__}: {line}")

    def _report_step(self, number: int, step: Step) -> None:
        self._print(f"step {number}: objective {step.objective:.6f}, rank {len(step.components)}")
