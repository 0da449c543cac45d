"""Intervals around forecasts: conformal bands that depend on the expected count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAX_BINS = 8
MIN_BIN_SIZE = 60  # errors; fewer are too few to estimate a 90 % interval


@dataclass(frozen=True)
class Bands:
    """For each horizon, bins of the expected count, and in each bin how far counts lie below and above it.

    Parameters
    ----------
    level : float
        The nominal share of counts inside the interval.
    edges : (n_horizons, n_bins - 1) array
        Inner edges of the bins of the expected count.
    below, above : (n_horizons, n_bins) arrays
        Offsets from an expected count to the lower and the upper end.
    """

    level: float
    edges: Array
    below: Array
    above: Array

    @classmethod
    def learn(cls, expected: Array, counts: Array, level: float = 0.9) -> Bands:
        """Learn bands from held-out forecasts, (n, n_horizons), and the observed counts, NaN where there is none.

        In each bin the ends are the conformal quantiles of count - expected: of n errors the
        (n + 1) (1 - level) / 2 smallest and largest lie outside.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level={level!r} is refused; it must be between 0 and 1")
        known = ~np.isnan(counts) & ~np.isnan(expected)
        n_known = int(known.sum(axis=0).min())
        if n_known < 2.0 / (1.0 - level):
            raise ValueError(f"{n_known} held-out forecasts are too few for an interval of {level:.0%}")
        n_bins = int(np.clip(n_known // MIN_BIN_SIZE, 1, MAX_BINS))
        n_horizons = expected.shape[1]
        edges, below, above = (
            np.empty((n_horizons, n_bins - 1)),
            np.empty((n_horizons, n_bins)),
            np.empty((n_horizons, n_bins)),
        )
        for h in range(n_horizons):
            predicted, observed = expected[:, h][known[:, h]], counts[:, h][known[:, h]]
            residuals = observed - predicted
            edges[h] = np.quantile(predicted, np.arange(1, n_bins) / n_bins)
            bins = np.searchsorted(edges[h], predicted, side="right")
            for b in range(n_bins):
                errors = np.sort(residuals[bins == b])
                errors = errors if len(errors) else np.sort(residuals)
                outside = int((len(errors) + 1) * (1.0 - level) / 2.0)
                below[h, b] = errors[max(outside - 1, 0)]
                above[h, b] = errors[len(errors) - max(outside, 1)]
        return cls(level, edges, below, above)

    def around(self, expected: Array) -> tuple[Array, Array]:
        """Return lower and upper ends for expected counts, (m, n_horizons); never below zero."""
        bins = (expected[:, :, None] >= self.edges).sum(axis=2)  # (m, n_horizons)
        horizons = np.arange(expected.shape[1])
        lower, upper = expected + self.below[horizons, bins], expected + self.above[horizons, bins]
        return np.maximum(np.minimum(lower, expected), 0.0), np.maximum(upper, expected)


def intervals_of(bands: Sequence[Bands | None], expected: Array) -> tuple[Array, Array]:
    """Return lower and upper ends for expected counts, (m, n_horizons), of as many models, each by its own bands.

    The same as ``Bands.around`` row by row. Bands with the same number of bins are evaluated at once.
    """
    lower, upper = np.empty_like(expected), np.empty_like(expected)
    groups: dict[tuple[int, ...], list[tuple[int, Bands]]] = {}
    for row, of_row in enumerate(bands):
        if of_row is None:
            raise ValueError("the model has no bands yet; training adds them")
        groups.setdefault(of_row.edges.shape, []).append((row, of_row))
    for group in groups.values():
        rows = [row for row, _ in group]
        values = expected[rows]
        edges = np.array([of_row.edges for _, of_row in group])  # (m, n_horizons, n_bins - 1)
        bins = (values[:, :, None] >= edges).sum(axis=2)[:, :, None]
        below = np.take_along_axis(np.array([of_row.below for _, of_row in group]), bins, axis=2)[:, :, 0]
        above = np.take_along_axis(np.array([of_row.above for _, of_row in group]), bins, axis=2)[:, :, 0]
        lower[rows] = np.maximum(np.minimum(values + below, values), 0.0)
        upper[rows] = np.maximum(values + above, values)
    return lower, upper
