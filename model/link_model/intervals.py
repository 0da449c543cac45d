"""Intervals around forecasts: a conformal band that adapts to the level of flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_BINS = 8
LEAST_A_BIN = 60  # errors; fewer say little about a 90 % interval


@dataclass(frozen=True)
class Bands:
    """For each horizon, bins of the expected count and how far counts strayed below and above.

    Parameters
    ----------
    level : float
        The share of counts the interval is meant to hold.
    edges : (n_horizons, n_bins - 1) array
        Inner edges of the bins of the expected count.
    below, above : (n_horizons, n_bins) arrays
        What to add to an expected count for the lower and the upper end.
    """

    level: float
    edges: Array
    below: Array
    above: Array

    @classmethod
    def learn(cls, expected: Array, counts: Array, level: float = 0.9) -> Bands:
        """Learn from held-out forecasts, (n, n_horizons), and the counts that came, NaN where none.

        In each bin the ends are the conformal quantiles of count - expected: of n errors the
        (n + 1) (1 - level) / 2 smallest and largest are left outside.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level={level!r} is refused; it must be between 0 and 1")
        known = ~np.isnan(counts) & ~np.isnan(expected)
        fewest = int(known.sum(axis=0).min())
        if fewest < 2.0 / (1.0 - level):
            raise ValueError(f"{fewest} held-out forecasts are too few for an interval of {level:.0%}")
        bins = int(np.clip(fewest // LEAST_A_BIN, 1, MOST_BINS))
        n_horizons = expected.shape[1]
        edges, below, above = (
            np.empty((n_horizons, bins - 1)),
            np.empty((n_horizons, bins)),
            np.empty((n_horizons, bins)),
        )
        for h in range(n_horizons):
            predicted, came = expected[:, h][known[:, h]], counts[:, h][known[:, h]]
            strayed = came - predicted
            edges[h] = np.quantile(predicted, np.arange(1, bins) / bins)
            places = np.searchsorted(edges[h], predicted, side="right")
            for b in range(bins):
                errors = np.sort(strayed[places == b])
                errors = errors if len(errors) else np.sort(strayed)
                outside = int((len(errors) + 1) * (1.0 - level) / 2.0)
                below[h, b] = errors[max(outside - 1, 0)]
                above[h, b] = errors[len(errors) - max(outside, 1)]
        return cls(level, edges, below, above)

    def around(self, expected: Array) -> tuple[Array, Array]:
        """Return lower and upper ends for expected counts, (m, n_horizons); never below zero."""
        places = (expected[:, :, None] >= self.edges).sum(axis=2)  # of each horizon's bins, (m, n_horizons)
        horizons = np.arange(expected.shape[1])
        lower, upper = expected + self.below[horizons, places], expected + self.above[horizons, places]
        return np.maximum(np.minimum(lower, expected), 0.0), np.maximum(upper, expected)
