"""Intervals that adapt to the errors of the forecasts they surround.

Bands that were learnt in training state how far counts lie below and above an expected count, by its size. Each end
is multiplied by a factor that rises when a count lies outside it and falls when not, such that in the long run each
side is missed as often as it should be, whatever the road does.

References
----------
I. Gibbs, E. Candès (2021), "Adaptive conformal inference under distribution shift", NeurIPS.
A. Angelopoulos, E. Candès, R. Tibshirani (2023), "Conformal PID control for time series prediction", NeurIPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.link_model.intervals import Bands

Array = NDArray[np.float64]
_quantile = np.vectorize(NormalDist().inv_cdf, otypes=[np.float64])  # not SciPy's, which a service does not load

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # of the intervals whose factors are followed
BAND_LEVEL = 0.9  # of the bands that are multiplied
STEP = 0.05  # relative change of a factor when a count lies outside
LEAST_OFFSET = 0.5  # vehicles; a band without width could not be widened by a factor
LEAST_FACTOR = 0.05  # after weeks of a dead detector, whose zeros are forecast exactly, intervals must widen in a day


def normal_factor(level: ArrayLike) -> Array:
    """Return how far the interval of a level reaches, relative to that of the bands, for normal errors."""
    return np.asarray(_quantile(0.5 + np.asarray(level) / 2.0) / _quantile(0.5 + BAND_LEVEL / 2.0))


@dataclass(frozen=True)
class IntervalFactors:
    """Factors of the bands' lower and upper offsets, (..., 2, n_levels); leading axes are links, horizons and so on."""

    factors: Array

    @classmethod
    def start(cls, *shape: int) -> IntervalFactors:
        """Return the factors before the first count: those of normal errors."""
        return cls(np.broadcast_to(normal_factor(LEVELS), (*shape, 2, len(LEVELS))).copy())

    def around(
        self, expected: ArrayLike, below: ArrayLike, above: ArrayLike, level: float = BAND_LEVEL
    ) -> tuple[Array, Array]:
        """Return the ends of the intervals of a level around expected counts; never below zero.

        Parameters
        ----------
        expected, below, above : (...) array-like
            Expected counts, and how far the bands reach below and above them, at least 0.
        level : float, default=0.9
            Between 0 and 1. Factors of other levels than those that are followed are interpolated.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level={level!r} is refused; it must be between 0 and 1")
        center = np.asarray(expected, dtype=np.float64)
        lower, upper = np.moveaxis(_offsets(below, above) * self.at(level), -1, 0)
        return np.asarray(np.maximum(center - lower, 0.0)), np.asarray(center + upper)

    def at(self, level: float) -> Array:
        """Return the factors of a level, (..., 2)."""
        reach, known = float(normal_factor(level)), normal_factor(LEVELS)
        factors = np.maximum.accumulate(self.factors, axis=-1)  # a higher level is never narrower
        if not known[0] < reach < known[-1]:
            nearest = 0 if reach <= known[0] else -1
            return np.asarray(factors[..., nearest] * reach / known[nearest])
        right = int(np.searchsorted(known, reach))
        share = (reach - known[right - 1]) / (known[right] - known[right - 1])
        return np.asarray((1.0 - share) * factors[..., right - 1] + share * factors[..., right])

    def after(self, expected: ArrayLike, below: ArrayLike, above: ArrayLike, counts: ArrayLike) -> IntervalFactors:
        """Return the factors after counts, (...); as they are where there is no count or no forecast."""
        errors = np.asarray(counts, dtype=np.float64) - np.asarray(expected, dtype=np.float64)
        distances = np.stack([-errors, errors], axis=-1)[..., None]  # below the forecast, and above it
        missed = distances > _offsets(below, above)[..., None] * self.factors
        tails = (1.0 - np.array(LEVELS)) / 2.0
        changed = np.maximum(self.factors * np.exp(STEP * (missed - tails)), LEAST_FACTOR)
        return IntervalFactors(np.where(np.isnan(distances), self.factors, changed))


def issued_bands(bands: Bands, n_horizons: int) -> Bands:
    """Return bands of the level and the horizons that are issued; the last of fewer horizons stands for the others."""
    if bands.level == BAND_LEVEL and len(bands.edges) == n_horizons:
        return bands
    ratio = 1.0 / float(normal_factor(bands.level))
    of_horizon = np.minimum(np.arange(n_horizons), len(bands.edges) - 1)
    return Bands(BAND_LEVEL, bands.edges[of_horizon], ratio * bands.below[of_horizon], ratio * bands.above[of_horizon])


def _offsets(below: ArrayLike, above: ArrayLike) -> Array:
    """Return the bands' offsets, (..., 2), none of them zero."""
    return np.asarray(
        np.maximum(np.stack([np.asarray(below, dtype=np.float64), np.asarray(above)], axis=-1), LEAST_OFFSET)
    )
