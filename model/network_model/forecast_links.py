"""Forecasts of many links of one network at once, each by its own model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.link_model.intervals import intervals_of
from model.link_model.trained_model import Forecasts
from model.network_model.network import NetworkModel

Array = NDArray[np.float64]


def forecast_network(models: Sequence[NetworkModel], columns: Sequence[Array], profile: Array) -> Forecasts:
    """Forecast links of one network, each by its own model; the same as ``model.forecast`` up to rounding.

    ``columns`` holds the rows of context for each horizon, (n_models, n_columns), and ``profile`` the
    standardised profiles of the slots that are forecast, (n_models, n_horizons).
    """
    base = models[0].network.base
    standardised = [base.standardised(rows, horizon) for horizon, rows in enumerate(columns, start=1)]
    own = np.array([model.own for model in models])  # (n_models, n_horizons, n_columns)
    deviations = np.stack(
        [
            np.einsum("ij,ij->i", rows, base.weights[h] + own[:, h]) + base.offset[h]
            for h, rows in enumerate(standardised)
        ],
        axis=1,
    )
    deviations += _corrections(models, standardised[0])[:, : deviations.shape[1]]
    scale, center = np.array([[model.scale, model.center] for model in models]).T
    expected = np.maximum((profile + deviations) * scale[:, None] + center[:, None], 0.0)
    return Forecasts(expected, *intervals_of([model.bands for model in models], expected))


def _corrections(models: Sequence[NetworkModel], standardised: Array) -> Array:
    network = models[0].network
    shares = np.array([model.shares for model in models])
    out = np.zeros((len(models), network.horizons))
    if not shares.any():
        return out
    queries = network.projected(standardised)
    for i in np.flatnonzero(shares[:, 0]).tolist():
        out[i] = shares[i, 0] * models[i].memory.estimate(queries[i : i + 1])[0]
    sharing = np.flatnonzero(shares[:, 1])
    if len(sharing):
        out[sharing] += shares[sharing, 1:] * network.memory.estimate(queries[sharing])
    return out
