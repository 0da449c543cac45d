"""A memory of what the linear base left over, and a local, locally linear estimate from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.estimators.fixed_point import FixedPoint

Array = NDArray[np.float64]
Floats = NDArray[np.float32]

SLOPE_PENALTY = 0.1  # of the local slopes, relative to the spread of the neighbours
FALL_OFF = 3.0  # the farthest neighbour weighs exp(-3) of one at no distance
BLOCK = 128  # queries at once


class Neighbours(NamedTuple):
    """The remembered rows nearest to one query, nearest first."""

    rows: NDArray[np.intp]  # (k,)
    weights: Array  # (k,), summing to one


@dataclass(frozen=True)
class LocalMemory:
    """Remembered moments under a metric, and what the base missed by, horizon by horizon.

    Parameters
    ----------
    places : FixedPoint, (n, rank)
        The moments, projected by the metric.
    missed : FixedPoint, (n, n_horizons)
        Count less base, in units of the link's scale; NaN where no count came.
    links : (n,) array of int
        Place of each row's link in the network.
    slots : (n,) array of int
        Slot of the first count that followed each moment.
    n_neighbors : int
    """

    places: FixedPoint
    missed: FixedPoint
    links: NDArray[np.int32]
    slots: NDArray[np.int64]
    n_neighbors: int

    def __len__(self) -> int:
        return len(self.slots)

    def until(self, slot: int) -> LocalMemory:
        """Forget the moments from a slot on."""
        kept = np.flatnonzero(self.slots < slot)
        places, missed = (FixedPoint(part.steps[kept], part.unit) for part in (self.places, self.missed))
        return LocalMemory(places, missed, self.links[kept], self.slots[kept], self.n_neighbors)

    def estimate(self, queries: Array) -> Array:
        """Estimate what the base misses at projected queries, (m, rank): (m, n_horizons).

        A weighted least-squares plane through the neighbours, read off at the query; its slopes are
        penalised, so that few or flat neighbours give their weighted mean.
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
        """Return the moments in single precision, and their squared lengths; keeping them would double the memory."""
        floats = self.places.steps.astype(np.float32) * self.places.unit.astype(np.float32)
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
