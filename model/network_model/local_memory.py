"""A memory of the residuals of the linear base, and local linear regression on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.estimators.fixed_point import FixedPoint

Array = NDArray[np.float64]
Floats = NDArray[np.float32]

SLOPE_PENALTY = 0.1  # on the local slopes, relative to the spread of the neighbours
FALL_OFF = 3.0  # the weight of the farthest neighbour is exp(-3), that of one at distance 0 is 1
BLOCK = 128  # queries at once


class Neighbours(NamedTuple):
    """The remembered rows nearest to one query, nearest first."""

    rows: NDArray[np.intp]  # (k,)
    weights: Array  # (k,), summing to one


@dataclass(frozen=True)
class LocalMemory:
    """Remembered rows of context under a metric, and the base's residuals for each horizon.

    Parameters
    ----------
    points : FixedPoint, (n, rank)
        The rows, projected by the metric.
    missed : FixedPoint, (n, n_horizons)
        Residuals, count less base, in units of the link's scale; NaN where there is no count.
    links : (n,) array of int
        Index of each row's link in the network.
    slots : (n,) array of int
        The slot of each row, which is that of the first count it forecasts.
    n_neighbors : int
    """

    points: FixedPoint
    missed: FixedPoint
    links: NDArray[np.int32]
    slots: NDArray[np.int64]
    n_neighbors: int

    def __len__(self) -> int:
        return len(self.slots)

    def until(self, slot: int) -> LocalMemory:
        """Return the memory without the rows from a slot on."""
        kept = np.flatnonzero(self.slots < slot)
        points, missed = (FixedPoint(part.steps[kept], part.unit) for part in (self.points, self.missed))
        return LocalMemory(points, missed, self.links[kept], self.slots[kept], self.n_neighbors)

    def estimate(self, queries: Array) -> Array:
        """Estimate the base's residuals at projected queries, (m, rank): (m, n_horizons).

        By local linear regression on the neighbours. Slopes are penalised, so that the estimate from few
        neighbours, or from neighbours that lie close together, is near their weighted mean.
        """
        out = np.zeros((len(queries), self.missed.steps.shape[1]))
        if not len(self):
            return out
        memory = self._unpacked()
        for start in range(0, len(queries), BLOCK):
            block = np.asarray(queries[start : start + BLOCK], dtype=np.float32)
            rows, weights = _nearest(*memory, block, self.n_neighbors)
            apart = memory[0][rows] - block[:, None, :]
            design = np.concatenate([np.ones((*rows.shape, 1), dtype=np.float32), apart], axis=2)
            missed = self.missed.values(rows.ravel()).reshape(*rows.shape, -1).astype(np.float32)
            shares = np.where(np.isnan(missed).any(axis=2), np.float32(0.0), weights)
            weighted = design * shares[:, :, None]
            gram = np.matmul(weighted.transpose(0, 2, 1), design)
            right = np.matmul(weighted.transpose(0, 2, 1), np.nan_to_num(missed))
            slopes = np.einsum("mjj->mj", gram)[:, 1:]
            penalty = SLOPE_PENALTY * slopes.mean(axis=1, keepdims=True) + 1e-6
            inner = np.arange(1, gram.shape[1])
            gram[:, inner, inner] += penalty
            gram[:, 0, 0] += 1e-6
            out[start : start + BLOCK] = np.linalg.solve(gram.astype(np.float64), right.astype(np.float64))[:, 0]
        return out

    def neighbours(self, query: Array) -> Neighbours:
        """Find the rows nearest to one query, (rank,), and their weights."""
        rows, weights = _nearest(*self._unpacked(), np.asarray(query[None], dtype=np.float32), self.n_neighbors)
        order = np.argsort(-weights[0], kind="stable")
        kept = weights[0][order].astype(np.float64)
        return Neighbours(rows[0][order], kept / max(float(kept.sum()), 1e-12))

    def _unpacked(self) -> tuple[Floats, Floats]:
        """Return the rows in single precision and their squared lengths, which would double the size if stored."""
        floats = self.points.steps.astype(np.float32) * self.points.unit.astype(np.float32)
        return floats, np.einsum("ij,ij->i", floats, floats)


def _nearest(memory: Floats, norms: Floats, queries: Floats, most: int) -> tuple[NDArray[np.intp], Floats]:
    k = min(most, len(memory))
    ranks = norms - np.float32(2.0) * (queries @ memory.T)
    if k < len(memory):
        rows = np.argpartition(ranks, k - 1, axis=1)[:, :k]
    else:
        rows = np.broadcast_to(np.arange(k), ranks.shape)
    distances = np.take_along_axis(ranks, rows, axis=1) + (queries**2).sum(axis=1, keepdims=True)
    reach = np.maximum(distances.max(axis=1, keepdims=True), np.float32(1e-12))
    return rows, np.exp(-np.float32(FALL_OFF) * np.maximum(distances, 0.0) / reach)
