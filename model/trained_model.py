"""A trained model of one link: its memory, reduced by the metric, and what turns it into forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.bands import Bands
from model.fixed_point import FixedPoint
from model.kernel import Array, Memory, Neighborhood, Rows, gaussian_weights
from model.lag_window import LagWindow
from model.profile import Profile

LEVEL_LAGS = 4  # the level of a window is the mean of its latest counts


class Forecasts(NamedTuple):
    """Expected counts and the ends of their intervals, each (m, n_horizons)."""

    expected: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class TrainedModel:
    """What a link's model remembers, in standardised counts.

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
        What followed each window, standardised and less its share of the window's level; NaN where
        no count followed.
    positions : (n,) array
        Slot of each window's first continuation, counted from the start of training.
    level_shares : (n_horizons,) array
        How much of a window's level its forecast keeps; the neighbours say the rest.
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
        """Forecast all horizons from windows of counts, (m, d); never below zero."""
        expected = self.expected_counts(windows)
        if self.bands is None:
            raise ValueError("the model has no bands yet; training gives them")
        return Forecasts(expected, *self.bands.around(expected))

    def expected_counts(self, windows: ArrayLike) -> Array:
        """Return the expected count of each horizon, (m, n_horizons)."""
        scaled = self._scaled(windows)
        rows, weights = self._neighbors(scaled)
        followed = self.continuations.values(rows)  # (m, k, n_horizons)
        known = ~np.isnan(followed)
        shares = weights[:, :, None] * known
        total = shares.sum(axis=1)
        # Where none of the neighbours was followed by a count, the level alone is left.
        means = np.sum(shares * np.where(known, followed, 0.0), axis=1) / np.where(total > 0.0, total, 1.0)
        expected = means + level_of(scaled, self.window)[:, None] * self.level_shares
        return np.asarray(np.maximum(expected * self.scale + self.center, 0.0))

    def neighbors(self, windows: ArrayLike) -> tuple[Rows, Array]:
        """Return which remembered windows look most alike, and their weights, (m, k) each."""
        return self._neighbors(self._scaled(windows))

    def _scaled(self, windows: ArrayLike) -> Array:
        counts = np.asarray(windows, dtype=np.float64)
        if counts.ndim != 2 or counts.shape[1] != len(self.window) or len(counts) == 0:
            raise ValueError(f"windows have shape {counts.shape}; they must be (1 or more, {len(self.window)})")
        if not np.isfinite(counts).all():
            raise ValueError("windows hold a gap or an infinite count; LagWindow.latest fills gaps or refuses them")
        return np.asarray((counts - self.center) / self.scale)

    def _neighbors(self, scaled: Array) -> tuple[Rows, Array]:
        queries = scaled @ self.components.T
        rows, distances = Memory(self.memory.values()).nearest(queries, self.neighborhood.n_neighbors)
        return rows, gaussian_weights(distances, self.neighborhood.bandwidth)


def level_of(scaled: Array, window: LagWindow) -> Array:
    """Return the mean of each window's latest lags, (m,)."""
    latest = np.argsort(window.lags)[:LEVEL_LAGS]
    return np.asarray(scaled[:, latest].mean(axis=1))
