"""Forecasts of many links of one network at once, each by its own model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.link_model.trained_model import Forecasts
from model.network_model.network import NetworkModel

Array = NDArray[np.float64]


def forecast_network(models: Sequence[NetworkModel], columns: Sequence[Array], usual: Array) -> Forecasts:
    """Forecast from one row of context each, by as many models of one network; the same as asking each.

    ``columns`` are the rows of each horizon, (n_models, n_columns), and ``usual`` the profiles of the
    slots to come in units of the links' scales, (n_models, n_horizons).
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
    expected = np.maximum((usual + deviations) * scale[:, None] + center[:, None], 0.0)
    return Forecasts(expected, *_around(models, expected))


def _corrections(models: Sequence[NetworkModel], standardised: Array) -> Array:
    network = models[0].network
    shares = np.array([model.shares for model in models])
    out = np.zeros((len(models), network.horizons))
    if not shares.any():
        return out
    queries = network.projected(standardised)
    for i in np.flatnonzero(shares[:, 0]).tolist():
        out[i] = shares[i, 0] * models[i].memory.estimate(queries[i : i + 1])[0]
    asking = np.flatnonzero(shares[:, 1])
    if len(asking):
        out[asking] += shares[asking, 1:] * network.memory.estimate(queries[asking])
    return out


def _around(models: Sequence[NetworkModel], expected: Array) -> tuple[Array, Array]:
    """Put each model's bands around what it expects, those with as many bins together."""
    lower, upper = np.empty_like(expected), np.empty_like(expected)
    alike: dict[tuple[int, ...], list[int]] = {}
    for i, model in enumerate(models):
        if model.bands is None:
            raise ValueError("the model has no bands yet; training gives them")
        alike.setdefault(model.bands.edges.shape, []).append(i)
    for group in alike.values():
        bands = [models[i].bands for i in group]
        group_expected = expected[group]
        edges = np.array([one.edges for one in bands if one is not None])  # (m, n_horizons, n_bins - 1)
        places = (group_expected[:, :, None] >= edges).sum(axis=2)[:, :, None]
        below = np.take_along_axis(np.array([one.below for one in bands if one is not None]), places, axis=2)
        above = np.take_along_axis(np.array([one.above for one in bands if one is not None]), places, axis=2)
        lower[group] = np.maximum(np.minimum(group_expected + below[:, :, 0], group_expected), 0.0)
        upper[group] = np.maximum(group_expected + above[:, :, 0], group_expected)
    return lower, upper
