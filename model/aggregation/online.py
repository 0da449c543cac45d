"""Online aggregation of the forecasts of several experts by polynomial weights, with forgetting.

The regret of the aggregate for an expert in a slot is how much the expert would have been better, by the gradient of
the square loss. An expert's weight is its cumulated regret, where that is positive, times its learning rate. So an
expert that has been no better than the aggregate has no weight, and one that suddenly is gets weight within a few
slots, because the regrets of such slots are large.

References
----------
P. Gaillard, G. Stoltz, T. van Erven (2014), "A second-order bound with excess losses", COLT (ML-Poly).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FORGETTING = 0.999  # share of the cumulated regrets that is kept after each count


class Aggregate(NamedTuple):
    """Forecasts of the aggregate, (...), NaN where there is none, and the weights of experts, (..., n_experts)."""

    expected: Array
    weights: Array


@dataclass(frozen=True)
class Regrets:
    """The regrets for each expert so far, (..., n_experts) each; the leading axes are links, horizons and the like.

    Parameters
    ----------
    cumulated : array
        Sum of regrets.
    squares : array
        Sum of squared regrets.
    largest : array
        The largest absolute regret.
    """

    cumulated: Array
    squares: Array
    largest: Array

    @classmethod
    def none(cls, *shape: int) -> Regrets:
        """Return the regrets before the first count."""
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    def aggregate(self, expected: ArrayLike) -> Aggregate:
        """Return the weighted mean of the experts' forecasts, (..., n_experts).

        An expert without a forecast, NaN, has no weight. Weights are equal where no available expert has a positive
        regret, as before the first count.
        """
        forecasts = np.asarray(expected, dtype=np.float64)
        available = ~np.isnan(forecasts)
        # The bound of the regret depends on the range of all experts, so the largest of all is in every rate.
        bounds = self.squares + np.max(self.largest, axis=-1, keepdims=True) ** 2
        rates = np.divide(1.0, bounds, out=np.zeros_like(bounds), where=bounds > 0.0)
        gains = rates * np.maximum(self.cumulated, 0.0) * available
        gains = np.where(gains.any(axis=-1, keepdims=True), gains, available)
        total = gains.sum(axis=-1, keepdims=True)
        weights = gains / np.where(total > 0.0, total, 1.0)
        mean = np.sum(weights * np.where(available, forecasts, 0.0), axis=-1)
        return Aggregate(np.where(available.any(axis=-1), mean, np.nan), weights)

    def after(self, expected: ArrayLike, counts: ArrayLike, forgetting: float = FORGETTING) -> Regrets:
        """Return the regrets after counts, (...), of slots for which the experts expected (..., n_experts).

        They stay as they are where there is no count or no forecast. The regret for an expert that has no forecast
        of the slot is zero.
        """
        forecasts, actual = np.asarray(expected, dtype=np.float64), np.asarray(counts, dtype=np.float64)
        aggregate = self.aggregate(forecasts).expected
        known = ~np.isnan(aggregate - actual)[..., None]
        regrets = np.nan_to_num(2.0 * (aggregate - actual)[..., None] * (aggregate[..., None] - forecasts))
        return Regrets(
            np.where(known, forgetting * self.cumulated + regrets, self.cumulated),
            np.where(known, forgetting * self.squares + regrets**2, self.squares),
            np.where(known, np.maximum(forgetting * self.largest, np.abs(regrets)), self.largest),
        )
