"""What MLKR and KR_SML share: examples in order, held-out rows, and the fit around a descent."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from model.descent import Descent, Loss, Step, factor
from model.kernel import Array, Barred, Memory, Neighborhood, Positions, estimate, leave_one_out_loss
from model.kr import KR
from model.parameters import number, one_of, whole_number

Solver = Literal["proximal", "paper"]


@dataclass(frozen=True)
class Examples:
    """Scaled inputs (n, d), standardised targets (n,) and each row's position in time (n,)."""

    inputs: Array
    targets: Array
    positions: Positions

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: slice | NDArray[np.intp]) -> Examples:
        """Take some of the rows."""
        return Examples(self.inputs[rows], self.targets[rows], self.positions[rows])

    def loss(self, like: Neighborhood, factor_two: bool = False) -> Loss:
        """Leave-one-out loss over these examples; ``factor_two`` gives equation 19's own factor."""
        barred = self._barred(self.positions, like)
        times = 2.0 * like.bandwidth**2 if factor_two else 1.0

        def loss(components: Array) -> tuple[float, Array]:
            value, gradient = leave_one_out_loss(components, self.inputs, self.targets, like, barred)
            return value, times * gradient

        return loss

    def error_on(self, held_out: Examples, like: Neighborhood) -> Callable[[Array], float]:
        """Mean squared error on other examples, estimated from these, as a function of A."""
        barred = self._barred(held_out.positions, like)

        def error(components: Array) -> float:
            memory = Memory(self.inputs @ components.T)
            queries = held_out.inputs @ components.T
            estimates = estimate(memory, self.targets, queries, like, barred)
            return float(np.mean((estimates - held_out.targets) ** 2))

        return error

    def _barred(self, queries: Positions, like: Neighborhood) -> Barred:
        barred = Barred(queries, self.positions, like.exclusion)
        if barred.leaves_none().any():
            raise ValueError(
                f"exclusion={like.exclusion} is refused: it leaves some rows without a neighbour "
                f"(n_samples={len(self)}); give more rows or a smaller exclusion"
            )
        return barred


class LearntMetric(KR):
    """Kernel regression under a metric that a descent learns from the training rows."""

    def __init__(
        self,
        *,
        n_neighbors: int,
        bandwidth: float,
        standardize: bool | Literal["auto"],
        solver: Solver,
        alpha: float,
        max_iter: int,
        tol: float,
        exclusion: int,
        early_stopping: int | None,
        random_state: int | np.random.RandomState | None,
        verbose: bool,
    ) -> None:
        super().__init__(n_neighbors=n_neighbors, bandwidth=bandwidth, standardize=standardize, verbose=verbose)
        self.solver = solver
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.exclusion = exclusion
        self.early_stopping = early_stopping
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, positions: ArrayLike | None = None) -> Self:
        """Learn the metric, then keep all rows, projected, as the memory.

        Parameters
        ----------
        X : (n, d) array-like, finite
        y : (n,) array-like, finite
        positions : (n,) array-like of whole numbers, optional
            Which slot each row belongs to; by default rows are consecutive. ``exclusion`` counts
            in these.
        """
        one_of(self, "solver", ("proximal", "paper"))
        number(self, "alpha", above=0.0)
        number(self, "tol", at_least=0.0)
        whole_number(self, "max_iter", at_least=0)
        exclusion = whole_number(self, "exclusion", at_least=0)
        inputs, targets = self._start_fit(X, y)
        if len(targets) < 2:
            raise ValueError(
                f"{type(self).__name__}: n_samples={len(targets)}; learning a metric needs at least 2 rows"
            )
        neighborhood = self._neighborhood
        like = Neighborhood(neighborhood.n_neighbors, neighborhood.bandwidth, exclusion)
        spread = float(targets.std())
        examples = Examples(inputs, targets / (spread if spread > 0.0 else 1.0), _as_positions(positions, len(targets)))
        descent = self._descend(examples, self._split(examples), like)
        self.n_iter_ = descent.n_iter
        self.objective_history_ = np.array(descent.objectives)
        self.held_out_history_ = np.array(descent.held_out_errors)
        self.converged_ = descent.converged
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps before the objective "
                f"settled within tol={self.tol}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._keep(factor(descent.components.T @ descent.components), inputs, targets)
        return self

    @abstractmethod
    def _descend(self, examples: Examples, held_out: Examples | None, like: Neighborhood) -> Descent:
        """Learn from ``examples``, or from all but the held-out rows that end them."""

    def _split(self, examples: Examples) -> Examples | None:
        if self.early_stopping is None:
            return None
        held = whole_number(self, "early_stopping", at_least=1)
        if held > len(examples) - 2:
            raise ValueError(
                f"{type(self).__name__}: early_stopping={held} is refused; of n_samples={len(examples)} rows "
                f"at least 2 must be left to learn from"
            )
        return examples.take(slice(len(examples) - held, None))

    def _report(self, number: int, step: Step) -> None:
        if self.verbose:
            rank = len(step.components)
            print(f"{type(self).__name__} step {number}: objective {step.objective:.6f}, rank {rank}")


def _as_positions(positions: ArrayLike | None, n: int) -> Positions:
    if positions is None:
        return np.arange(n)
    given = np.asarray(positions)
    if given.shape != (n,):
        raise ValueError(f"positions has shape {given.shape}; it must be one whole number for each of {n} rows")
    if given.dtype.kind in "iu":
        return given.astype(np.int64)
    if given.dtype.kind == "f" and np.isfinite(given).all() and (given == np.round(given)).all():
        return given.astype(np.int64)
    odd = next((value for value in given.tolist() if not isinstance(value, float) or value != round(value, 0)), None)
    raise ValueError(f"positions holds {odd!r}; each must be a whole number")
