"""Neighbours, Gaussian weights and the leave-one-out loss: what all four estimators share.

Notation: n rows in the memory, m queries, k neighbours, d inputs, r the rank of the metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Positions = NDArray[np.int64]

# A block of distances should stay in a core's second-level cache: ranking it is bound by memory.
BLOCK_BYTES = 1 << 20
MIN_BLOCK_ROWS = 32


@dataclass(frozen=True)
class Neighborhood:
    """How many neighbours, how their weights fall off, and which rows may not be neighbours.

    A memory row is barred from a query when their positions differ by at most ``exclusion``; with
    the default positions (row numbers) and ``exclusion=0`` that bars the query's own row alone.
    """

    n_neighbors: int
    bandwidth: float
    exclusion: int = 0


class Memory:
    """Projected rows laid out for repeated searches of their nearest neighbours."""

    def __init__(self, projected: Array) -> None:
        self.projected = np.ascontiguousarray(projected)  # (n, r)
        self._square_norms = np.einsum("ij,ij->i", self.projected, self.projected)
        # [q, 1] @ [-2 p, |p|^2].T ranks like |q - p|^2: |q|^2 is the same for all rows.
        self._ranking = np.concatenate([-2.0 * self.projected, self._square_norms[:, None]], axis=1).T

    def __len__(self) -> int:
        return len(self.projected)

    def __reduce__(self) -> tuple[type[Memory], tuple[Array]]:
        return Memory, (self.projected,)  # the rest is derived from it

    def nearest(self, queries: Array, k: int, barred: Barred | None = None) -> tuple[Rows, Array]:
        """Find the k nearest rows of each query: ``(rows, squared distances)``, both (m, k).

        Of rows at the same distance the lower row number is taken first. The columns come in no
        particular order. Where fewer than k rows are allowed, the missing have distance infinity.
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
            if barred is not None:
                barred.mark(ranks, start)
            rows[span] = self._choose(queries[span], ranks, k)
            # Differences, not the expanded square: near neighbours must not suffer cancellation.
            gaps = queries[span, None, :] - self.projected[rows[span]]
            distances[span] = np.einsum("ijk,ijk->ij", gaps, gaps)
            if barred is not None:
                distances[span][np.isinf(np.take_along_axis(ranks, rows[span], axis=1))] = np.inf
        return rows, distances

    def _choose(self, queries: Array, ranks: Array, k: int) -> Rows:
        if k == len(self):
            return np.broadcast_to(np.arange(k), ranks.shape)
        first = np.argpartition(ranks, k, axis=1)[:, : k + 1]  # the last is the (k+1)-th
        rows = first[:, :k]
        values = np.take_along_axis(ranks, first, axis=1)
        taken, left = values[:, :k].max(axis=1), values[:, k]
        # Where rounding could decide the k-th, exact distance and then row number do. Rows within
        # rounding of it are about as far from the origin as the query and the k-th themselves.
        scale = np.einsum("ij,ij->i", queries, queries) + self._square_norms[rows].max(axis=1)
        slack = 8.0 * (queries.shape[1] + 2) * np.finfo(np.float64).eps * scale
        for i in np.flatnonzero((left <= taken + slack) & np.isfinite(taken)):
            candidates = np.flatnonzero(ranks[i] <= taken[i] + slack[i])
            exact = ((queries[i] - self.projected[candidates]) ** 2).sum(axis=1)
            rows[i] = candidates[np.lexsort((candidates, exact))[:k]]
        return rows


class Barred:
    """The memory rows within ``exclusion`` positions of each query, marked block by block."""

    def __init__(self, queries: Positions, memory: Positions, exclusion: int) -> None:
        self._order = np.argsort(memory, kind="stable")
        ordered = memory[self._order]
        self._first = np.searchsorted(ordered, queries - exclusion, side="left")
        self._count = np.searchsorted(ordered, queries + exclusion, side="right") - self._first

    def mark(self, ranks: Array, start: int) -> None:
        """Set the barred entries of a block that begins at query ``start`` to infinity."""
        first = self._first[start : start + len(ranks)]
        count = self._count[start : start + len(ranks)]
        line = np.repeat(np.arange(len(ranks)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        ranks[line, self._order[np.repeat(first, count) + offset]] = np.inf

    def leaves_none(self) -> NDArray[np.bool_]:
        """Return which queries have no allowed row at all."""
        return self._count >= len(self._order)


def gaussian_weights(distances: Array, bandwidth: float) -> Array:
    """Normalised Gaussian kernel values (equation 6) of squared distances, (m, k).

    A softmax of -d / (2 bandwidth^2), taken relative to the nearest neighbour: it stays exact
    when every kernel value underflows. A neighbour at infinity weighs nothing.
    """
    nearest = distances.min(axis=1, keepdims=True)
    weights = np.exp((nearest - distances) / (2.0 * bandwidth**2))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def weighted_mean(weights: Array, neighbor_targets: Array) -> Array:
    """Nadaraya-Watson estimate (equation 5) from normalised weights and targets, both (m, k)."""
    return np.asarray(np.einsum("ij,ij->i", weights, neighbor_targets))


def estimate(memory: Memory, targets: Array, queries: Array, like: Neighborhood, barred: Barred | None = None) -> Array:
    """Kernel regression of projected queries from a projected memory and its targets, (m,)."""
    rows, distances = memory.nearest(queries, like.n_neighbors, barred)
    return weighted_mean(gaussian_weights(distances, like.bandwidth), targets[rows])


def leave_one_out_loss(
    components: Array, inputs: Array, targets: Array, like: Neighborhood, barred: Barred
) -> tuple[float, Array]:
    """Mean squared leave-one-out error and its gradient with respect to M = A.T @ A.

    Parameters
    ----------
    components : (r, d) array, A
    inputs : (n, d) array
    targets : (n,) array
    like : Neighborhood
    barred : Barred
        Which rows may not be a row's neighbours; at least the row itself.

    Returns
    -------
    loss : float
        Equation 8 divided by n.
    gradient : (d, d) array, symmetric
        (1 / (n bandwidth^2)) sum_i (p_i - y_i) sum_j w_ij (p_i - y_j) x_ij x_ij.T, which is
        equation 19 without its penalty, divided by n, at bandwidth^2 = 1/2.
    """
    projected = inputs @ components.T  # (n, r)
    rows, distances = Memory(projected).nearest(projected, like.n_neighbors, barred)
    weights = gaussian_weights(distances, like.bandwidth)
    neighbor_targets = targets[rows]  # (n, k)
    estimates = weighted_mean(weights, neighbor_targets)
    errors = estimates - targets
    pulls = errors[:, None] * weights * (estimates[:, None] - neighbor_targets)  # c_ij
    gradient = scatter(inputs, rows, pulls) / (len(targets) * like.bandwidth**2)
    return float(errors @ errors) / len(targets), gradient


def scatter(inputs: Array, rows: Rows, pulls: Array) -> Array:
    """Sum c_ij x_ij x_ij.T over all rows i and their neighbours j, (d, d).

    With C the sparse matrix of the c_ij, r its row sums and s its column sums, the sum is
    X.T (diag(r + s) - C - C.T) X: O(n k d + n d^2), where outer products would cost O(n k d^2).
    """
    from scipy import sparse  # here, for only learning needs it, and it is large

    n, k = rows.shape
    starts = np.arange(0, n * k + 1, k)
    matrix: Any = sparse.csr_array((pulls.ravel(), rows.ravel(), starts), shape=(n, n))
    sums = pulls.sum(axis=1) + np.bincount(rows.ravel(), weights=pulls.ravel(), minlength=n)
    half = inputs.T @ (0.5 * sums[:, None] * inputs - matrix @ inputs)
    return np.asarray(half + half.T)
