"""Training examples in order of time, and the losses by which a metric is learnt and evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.estimators.descent import Loss
from model.estimators.kernel import Array, ExcludedRows, Memory, Neighborhood, Positions, estimate, leave_one_out_loss

FARTHEST_POSITION = 2**60


class TooFewRows(ValueError):
    """Raised for too few rows to learn from, or when exclusion leaves a row without neighbours."""


@dataclass(frozen=True)
class Examples:
    """Scaled inputs (n, d), standardised targets (n,) and each row's position in time (n,)."""

    inputs: Array
    targets: Array
    positions: Positions

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: slice | NDArray[np.intp]) -> Examples:
        """Return the examples of some rows."""
        return Examples(self.inputs[rows], self.targets[rows], self.positions[rows])

    def loss(self, neighborhood: Neighborhood, factor_two: bool = False) -> Loss:
        """Return the leave-one-out loss; ``factor_two`` scales the gradient as equation 19 does."""
        excluded = self._excluded_rows(self.positions, neighborhood)
        factor = 2.0 * neighborhood.bandwidth**2 if factor_two else 1.0

        def loss(components: Array) -> tuple[float, Array]:
            value, gradient = leave_one_out_loss(components, self.inputs, self.targets, neighborhood, excluded)
            return value, factor * gradient

        return loss

    def error_on(self, held_out: Examples, neighborhood: Neighborhood) -> Callable[[Array], float]:
        """Return the mean squared error on other examples, estimated from these, as a function of A."""
        excluded = self._excluded_rows(held_out.positions, neighborhood)

        def error(components: Array) -> float:
            memory = Memory(self.inputs @ components.T)
            queries = held_out.inputs @ components.T
            estimates = estimate(memory, self.targets, queries, neighborhood, excluded)
            return float(np.mean((estimates - held_out.targets) ** 2))

        return error

    def _excluded_rows(self, queries: Positions, neighborhood: Neighborhood) -> ExcludedRows:
        excluded = ExcludedRows(queries, self.positions, neighborhood.exclusion)
        isolated = excluded.without_neighbors()
        if isolated.any():
            position = int(queries[np.argmax(isolated)])
            raise TooFewRows(
                f"exclusion={neighborhood.exclusion} is refused: with {len(self)} rows to learn from, the row at "
                f"position {position} has no neighbour farther than that; use more rows or a smaller exclusion"
            )
        return excluded


def as_positions(positions: ArrayLike | None, n: int) -> Positions:
    """Check the position of each row, a whole number; by default rows are consecutive."""
    if positions is None:
        return np.arange(n)
    given = np.asarray(positions)
    if given.shape != (n,):
        raise ValueError(f"positions has shape {given.shape}; it must be one whole number for each of {n} rows")
    for value in given.tolist():
        if not _is_position(value):
            raise ValueError(f"positions holds {value!r}; each must be a whole number within 2**60 of zero")
    return given.astype(np.int64)


def _is_position(value: Any) -> bool:
    is_integer = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return is_integer and not isinstance(value, bool) and abs(value) <= FARTHEST_POSITION
