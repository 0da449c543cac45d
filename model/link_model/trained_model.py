"""A trained model of one link: its memory, projected by the metric, and its forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.estimators.fixed_point import FixedPoint
from model.estimators.kernel import Array, ExcludedRows, Memory, Neighborhood, Positions, RowIndices
from model.link_model.intervals import Bands
from model.link_model.lag_window import LagWindow
from model.link_model.profile import Profile

Floats = NDArray[np.float32]


def square_norms(memory: FixedPoint) -> Floats:
    """Return the squared length of every remembered row, (n,)."""
    values = memory.values()
    return np.asarray(np.einsum("ij,ij->i", values, values), dtype=np.float32)


def nearest_rows(memory: FixedPoint, norms: Floats, query: Array, k: int) -> tuple[RowIndices, Array]:
    """Find the k rows nearest to one query, (r,): their numbers and squared distances, (k,) each.

    Single precision only selects candidates. The distance of every row that could be among the
    nearest, given rounding, is computed again in double precision, so that the result is that of an
    exact search. Of rows at the same distance the lower number comes first.
    """
    n, r = memory.steps.shape
    k = min(k, n)
    direction = (-2.0 * query * memory.unit).astype(np.float32)
    ranks = memory.steps.astype(np.float32) @ direction
    ranks += norms  # |q - p|^2 - |q|^2; the last term is the same for all rows
    kth = np.partition(ranks, k - 1)[k - 1]
    # The terms of the sum are at most |p|^2 + |q|^2 together, and each is rounded a few times.
    scale = float(query @ query) + float(norms.max())
    slack = 8.0 * (r + 2) * float(np.finfo(np.float32).eps) * scale
    near = np.flatnonzero(ranks <= kth + slack)
    gaps = memory.values(near) - query
    distances = np.einsum("ij,ij->i", gaps, gaps)
    order = np.lexsort((near, distances))[:k]
    return near[order], distances[order]


ALGORITHMS = ("KR", "KR_PCA", "MLKR", "KR_SML")
LEVEL_LAGS = 4  # the level of a window is the mean of its latest counts
# A forecast is the mean over neighbourhoods of these sizes, relative to n_neighbors, because their mean is
# more accurate than the best single size (docs/accuracy.md).
NEIGHBORHOOD_SIZES = (0.4, 0.6, 0.8, 1.0, 1.4, 2.0)
MAX_SINGLE_QUERIES = 8  # up to this many windows are searched one by one, which is faster


class Forecasts(NamedTuple):
    """Expected counts and the ends of their intervals, each (m, n_horizons)."""

    expected: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class TrainedModel:
    """A link's model, in standardised counts.

    Parameters
    ----------
    algorithm : str
    window : LagWindow
    center, scale : float
        Mean and standard deviation of the link's counts while training.
    components : (rank, d) array
        A of the metric, on standardised windows.
    memory : FixedPoint, (n, rank)
        The projected windows.
    continuations : FixedPoint, (n, n_horizons)
        The counts after each window, standardised and less their share of the window's level; NaN
        where there is none.
    positions : (n,) array
        Slot of each window's first continuation, counted from the start of training.
    level_shares : (n_horizons,) array
        Share of a window's level in its forecast; the neighbours' continuations are the rest.
    """

    algorithm: str
    window: LagWindow
    neighborhood: Neighborhood
    center: float
    scale: float
    components: Array
    memory: FixedPoint
    continuations: FixedPoint
    positions: NDArray[np.int32]
    level_shares: Array
    profile: Profile
    bands: Bands | None = None

    @property
    def rank(self) -> int:
        """Rank of the metric."""
        return len(self.components)

    def forecast(self, windows: ArrayLike) -> Forecasts:
        """Return forecasts of all horizons from windows of counts, (m, d); never below zero."""
        expected = self.expected_counts(windows)
        if self.bands is None:
            raise ValueError("the model has no bands yet; training adds them")
        return Forecasts(expected, *self.bands.around(expected))

    def expected_counts(self, windows: ArrayLike) -> Array:
        """Return the expected count of each horizon, (m, n_horizons)."""
        return self._expected(self._standardise(windows))

    def expected_counts_excluding(self, windows: ArrayLike, positions: Positions, exclusion: int) -> Array:
        """Return the expected counts without the windows within ``exclusion`` slots of each position.

        For windows that are in the memory themselves. NaN where the whole memory is excluded.
        """
        scaled = self._standardise(windows)
        memory_positions = self.positions.astype(np.int64)
        isolated = ExcludedRows(positions, memory_positions, exclusion).without_neighbors()
        expected = np.full((len(scaled), len(self.level_shares)), np.nan)
        if not isolated.all():
            expected[~isolated] = self._expected(
                scaled[~isolated], ExcludedRows(positions[~isolated], memory_positions, exclusion)
            )
        return expected

    def _expected(self, scaled: Array, excluded: ExcludedRows | None = None) -> Array:
        rows, weights = self._neighbors(scaled, excluded)
        continuations = self.continuations.values(rows)  # (m, k, n_horizons)
        known = ~np.isnan(continuations)
        if known.all():
            means = np.einsum("ij,ijh->ih", weights, continuations)
        else:
            shares = weights[:, :, None] * known
            total = shares.sum(axis=1)
            # Where no neighbour has a continuation, the forecast is the level alone.
            means = np.sum(shares * np.where(known, continuations, 0.0), axis=1) / np.where(total > 0.0, total, 1.0)
        expected = means + level_of(scaled, self.window)[:, None] * self.level_shares
        return np.asarray(np.maximum(expected * self.scale + self.center, 0.0))

    def neighbors(self, windows: ArrayLike) -> tuple[RowIndices, Array]:
        """Return the rows of the nearest remembered windows, and their weights, (m, k) each."""
        return self._neighbors(self._standardise(windows))

    def nearest(self, window: ArrayLike) -> tuple[RowIndices, Array, Array]:
        """Return the rows nearest to one window, (1, d), their squared distances, and the standardised window."""
        scaled = self._standardise(window)
        query = (scaled @ self.components.T)[0]
        most = neighborhood_sizes(self.neighborhood.n_neighbors)[-1]
        return *nearest_rows(self.memory, self._square_norms, query, most), scaled

    def _standardise(self, windows: ArrayLike) -> Array:
        counts = np.asarray(windows, dtype=np.float64)
        if counts.ndim != 2 or counts.shape[1] != len(self.window) or len(counts) == 0:
            raise ValueError(f"windows have shape {counts.shape}; they must be (1 or more, {len(self.window)})")
        if not np.isfinite(counts).all():
            raise ValueError("windows hold a gap or an infinite count; use LagWindow.latest, which fills gaps")
        return np.asarray((counts - self.center) / self.scale)

    def _neighbors(self, scaled: Array, excluded: ExcludedRows | None = None) -> tuple[RowIndices, Array]:
        queries = scaled @ self.components.T
        most = neighborhood_sizes(self.neighborhood.n_neighbors)[-1]
        if excluded is None and len(queries) <= MAX_SINGLE_QUERIES:
            found = [nearest_rows(self.memory, self._square_norms, query, most) for query in queries]
            rows, distances = np.array([row for row, _ in found]), np.array([far for _, far in found])
        else:
            rows, distances = Memory(self.memory.values()).nearest(queries, most, excluded)
            order = np.lexsort((rows, distances), axis=1)
            rows, distances = np.take_along_axis(rows, order, axis=1), np.take_along_axis(distances, order, axis=1)
        return rows, mean_weights(distances, self.neighborhood)

    @cached_property
    def _square_norms(self) -> Floats:
        return square_norms(self.memory)


@lru_cache
def neighborhood_sizes(n_neighbors: int) -> tuple[int, ...]:
    """Return the sizes of the neighbourhoods that a forecast is averaged over, smallest first."""
    return tuple(sorted({max(1, round(size * n_neighbors)) for size in NEIGHBORHOOD_SIZES}))


def mean_weights(distances: Array, neighborhood: Neighborhood) -> Array:
    """Return the neighbours' weights, (m, k), averaged over neighbourhoods of several sizes; nearest first."""
    k = distances.shape[1]
    sizes = [size for size in neighborhood_sizes(neighborhood.n_neighbors) if size <= k] or [k]
    kernel = np.exp((distances[:, :1] - distances) / (2.0 * neighborhood.bandwidth**2))
    last = np.array(sizes) - 1
    shares = np.zeros_like(distances)
    shares[:, last] = 1.0 / np.cumsum(kernel, axis=1)[:, last]
    # The j-th neighbour is in every neighbourhood of more than j; the weights in each sum to one.
    return np.asarray(kernel * np.cumsum(shares[:, ::-1], axis=1)[:, ::-1] / len(sizes))


def level_of(scaled: Array, window: LagWindow) -> Array:
    """Return the mean of each window's latest lags, (m,)."""
    return np.asarray(scaled[:, _latest_columns(window.lags)].mean(axis=1))


@lru_cache
def _latest_columns(lags: tuple[int, ...]) -> list[int]:
    return [int(i) for i in np.argsort(lags)[:LEVEL_LAGS]]
