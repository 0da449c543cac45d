"""Neighbours, Gaussian weights and the leave-one-out loss, shared by all four estimators.

Notation: n rows in the memory, m queries, k neighbours, d inputs, r the rank of the metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RowIndices = NDArray[np.intp]
Positions = NDArray[np.int64]

# A block of distances should stay in a core's second-level cache: ranking it is bound by memory.
BLOCK_BYTES = 1 << 20
MIN_BLOCK_ROWS = 32


@dataclass(frozen=True)
class Neighborhood:
    """The number of neighbours, the bandwidth of their weights, and the rows that are excluded.

    A memory row is excluded for a query when their positions differ by at most ``exclusion``. With
    the default positions (row numbers) and ``exclusion=0`` only the query's own row is excluded.
    """

    n_neighbors: int
    bandwidth: float
    exclusion: int = 0


class Memory:
    """Projected rows laid out for repeated searches of their nearest neighbours."""

    def __init__(self, projected: Array) -> None:
        self.projected = np.ascontiguousarray(projected)  # (n, r)
        self._square_norms = np.einsum("ij,ij->i", self.projected, self.projected)
        # [q, 1] @ [-2 p, |p|^2].T orders rows as |q - p|^2 does, because |q|^2 is the same for all of them.
        self._ranking = np.concatenate([-2.0 * self.projected, self._square_norms[:, None]], axis=1).T

    def __len__(self) -> int:
        return len(self.projected)

    def __reduce__(self) -> tuple[type[Memory], tuple[Array]]:
        return Memory, (self.projected,)  # the other attributes are derived from it

    def nearest(self, queries: Array, k: int, excluded: ExcludedRows | None = None) -> tuple[RowIndices, Array]:
        """Find the k nearest rows of each query: ``(rows, squared distances)``, both (m, k).

        Of rows at the same distance the lower row number is taken first. The columns are in no
        particular order. Where fewer than k rows are allowed, the distance of the others is infinite.
        Memory: O(block * n + m * (k + r)).
        """
        m, n = len(queries), len(self)
        k = min(k, n)
        rows = np.empty((m, k), dtype=np.intp)
        distances = np.empty((m, k))
        block = min(m, max(MIN_BLOCK_ROWS, BLOCK_BYTES // (8 * n)))
        buffer = np.empty((block, n))
        extended = np.concatenate([queries, np.ones((m, 1))], axis=1)
        for start in range(0, m, block):
            span = slice(start, min(start + block, m))
            ranks = np.matmul(extended[span], self._ranking, out=buffer[: span.stop - start])
            if excluded is not None:
                excluded.mask(ranks, start)
            rows[span] = self._choose(queries[span], ranks, k)
            # Differences instead of the expanded square avoid cancellation for near neighbours.
            gaps = queries[span, None, :] - self.projected[rows[span]]
            distances[span] = np.einsum("ijk,ijk->ij", gaps, gaps)
            if excluded is not None:
                distances[span][np.isinf(np.take_along_axis(ranks, rows[span], axis=1))] = np.inf
        return rows, distances

    def _choose(self, queries: Array, ranks: Array, k: int) -> RowIndices:
        if k == len(self):
            return np.broadcast_to(np.arange(k), ranks.shape)
        first = np.argpartition(ranks, k, axis=1)[:, : k + 1]  # the last column is the (k+1)-th nearest
        rows = first[:, :k]
        values = np.take_along_axis(ranks, first, axis=1)
        taken, left = values[:, :k].max(axis=1), values[:, k]
        # Where rounding could decide on the k-th row, the exact distance and then the row number decide. Rows
        # within rounding of it are about as far from the origin as the query and the k-th row.
        scale = np.einsum("ij,ij->i", queries, queries) + self._square_norms[rows].max(axis=1)
        slack = 8.0 * (queries.shape[1] + 2) * np.finfo(np.float64).eps * scale
        for i in np.flatnonzero((left <= taken + slack) & np.isfinite(taken)):
            candidates = np.flatnonzero(ranks[i] <= taken[i] + slack[i])
            exact = ((queries[i] - self.projected[candidates]) ** 2).sum(axis=1)
            rows[i] = candidates[np.lexsort((candidates, exact))[:k]]
        return rows


class ExcludedRows:
    """The memory rows within ``exclusion`` positions of each query, masked block by block."""

    def __init__(self, queries: Positions, memory: Positions, exclusion: int) -> None:
        self._order = np.argsort(memory, kind="stable")
        ordered = memory[self._order]
        self._first = np.searchsorted(ordered, queries - exclusion, side="left")
        self._count = np.searchsorted(ordered, queries + exclusion, side="right") - self._first

    def mask(self, ranks: Array, start: int) -> None:
        """Set the excluded entries of a block that begins at query ``start`` to infinity."""
        first = self._first[start : start + len(ranks)]
        count = self._count[start : start + len(ranks)]
        line = np.repeat(np.arange(len(ranks)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        ranks[line, self._order[np.repeat(first, count) + offset]] = np.inf

    def without_neighbors(self) -> NDArray[np.bool_]:
        """Return a mask of the queries for which every row is excluded."""
        return self._count >= len(self._order)


def gaussian_weights(distances: Array, bandwidth: float) -> Array:
    """Return normalised Gaussian kernel values (equation 6) of squared distances, (m, k).

    A softmax of -d / (2 bandwidth^2), computed relative to the nearest neighbour, so that it stays
    exact when every kernel value underflows. The weight of a neighbour at infinity is 0.
    """
    nearest = distances.min(axis=1, keepdims=True)
    weights = np.exp((nearest - distances) / (2.0 * bandwidth**2))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def weighted_mean(weights: Array, neighbor_targets: Array) -> Array:
    """Return the Nadaraya-Watson estimate (equation 5) from normalised weights and targets, both (m, k)."""
    return np.asarray(np.einsum("ij,ij->i", weights, neighbor_targets))


def estimate(
    memory: Memory, targets: Array, queries: Array, neighborhood: Neighborhood, excluded: ExcludedRows | None = None
) -> Array:
    """Estimate targets of projected queries by kernel regression on a projected memory, (m,)."""
    rows, distances = memory.nearest(queries, neighborhood.n_neighbors, excluded)
    return weighted_mean(gaussian_weights(distances, neighborhood.bandwidth), targets[rows])


def leave_one_out_loss(
    components: Array, inputs: Array, targets: Array, neighborhood: Neighborhood, excluded: ExcludedRows
) -> tuple[float, Array]:
    """Return the mean squared leave-one-out error and its gradient with respect to M = A.T @ A.

    Parameters
    ----------
    components : (r, d) array, A
    inputs : (n, d) array
    targets : (n,) array
    neighborhood : Neighborhood
    excluded : ExcludedRows
        The rows that may not be a row's neighbours; at least the row itself.

    Returns
    -------
    loss : float
        Equation 8 divided by n.
    gradient : (d, d) array, symmetric
        (1 / (n bandwidth^2)) sum_i (p_i - y_i) sum_j w_ij (p_i - y_j) x_ij x_ij.T, which is
        equation 19 without its penalty, divided by n, at bandwidth^2 = 1/2.
    """
    projected = inputs @ components.T  # (n, r)
    rows, distances = Memory(projected).nearest(projected, neighborhood.n_neighbors, excluded)
    weights = gaussian_weights(distances, neighborhood.bandwidth)
    neighbor_targets = targets[rows]  # (n, k)
    estimates = weighted_mean(weights, neighbor_targets)
    errors = estimates - targets
    coefficients = errors[:, None] * weights * (estimates[:, None] - neighbor_targets)  # c_ij
    gradient = scatter(inputs, rows, coefficients) / (len(targets) * neighborhood.bandwidth**2)
    return float(errors @ errors) / len(targets), gradient


def scatter(inputs: Array, rows: RowIndices, coefficients: Array) -> Array:
    """Sum c_ij x_ij x_ij.T over all rows i and their neighbours j, (d, d).

    With C the sparse matrix of the c_ij, r its row sums and s its column sums, the sum is
    X.T (diag(r + s) - C - C.T) X: O(n k d + n d^2), where outer products would cost O(n k d^2).
    """
    from scipy import sparse  # imported here because it is large and only learning needs it

    n, k = rows.shape
    starts = np.arange(0, n * k + 1, k)
    matrix: Any = sparse.csr_array((coefficients.ravel(), rows.ravel(), starts), shape=(n, n))
    sums = coefficients.sum(axis=1) + np.bincount(rows.ravel(), weights=coefficients.ravel(), minlength=n)
    half = inputs.T @ (0.5 * sums[:, None] * inputs - matrix @ inputs)
    return np.asarray(half + half.T)
