"""Neighbours of a few windows in a fixed-point memory, without unpacking it to double precision.

One forecast needs one row of distances. Unpacking the whole memory for it would cost several times
the distances themselves, and keeping it unpacked eight times the memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.estimators.fixed_point import FixedPoint
from model.estimators.kernel import Array, Rows

Floats = NDArray[np.float32]


def square_norms(memory: FixedPoint) -> Floats:
    """Return the squared length of every remembered row, (n,)."""
    values = memory.values()
    return np.asarray(np.einsum("ij,ij->i", values, values), dtype=np.float32)


def nearest_rows(memory: FixedPoint, norms: Floats, query: Array, k: int) -> tuple[Rows, Array]:
    """Find the k rows nearest to one query, (r,): their numbers and squared distances, (k,) each.

    Single precision only narrows the choice down: every row that rounding could bring among the
    nearest is measured again in double precision, so that the result is the same as an exact
    search, of rows at the same distance the lower number first.
    """
    n, r = memory.steps.shape
    k = min(k, n)
    direction = (-2.0 * query * memory.unit).astype(np.float32)
    ranks = memory.steps.astype(np.float32) @ direction
    ranks += norms  # |q - p|^2 but for |q|^2, which is the same for all rows
    kth = np.partition(ranks, k - 1)[k - 1]
    # Terms of the sum are at most |p|^2 + |q|^2 in all; each is rounded a few times.
    scale = float(query @ query) + float(norms.max())
    slack = 8.0 * (r + 2) * float(np.finfo(np.float32).eps) * scale
    near = np.flatnonzero(ranks <= kth + slack)
    gaps = memory.values(near) - query
    distances = np.einsum("ij,ij->i", gaps, gaps)
    order = np.lexsort((near, distances))[:k]
    return near[order], distances[order]
