"""Forecasts of many links at once, each from one window by its own model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from model.estimators.kernel import Array
from model.link_model.intervals import intervals_of
from model.link_model.trained_model import Forecasts, TrainedModel, level_of, mean_weights


class _Neighbors(NamedTuple):
    """A model's neighbours of its window."""

    position: int  # of the model among those given
    model: TrainedModel
    distances: Array  # (k,)
    continuations: Array  # (k, n_horizons)
    level: Array  # (1,)


def forecast_each(models: Sequence[TrainedModel], windows: Iterable[Array]) -> list[Forecasts]:
    """Forecast each window, (1, d), by its own model; the same as ``model.forecast`` up to rounding.

    Neighbours are found model by model. What follows is small and is computed for all models of the
    same shape at once, because separate calls would take as long as the search.
    """
    groups: dict[tuple[int, float, tuple[int, ...]], list[_Neighbors]] = {}
    for index, (model, window) in enumerate(zip(models, windows, strict=True)):
        rows, distances, scaled = model.nearest(window)
        continuations, level = model.continuations.values(rows), level_of(scaled, model.window)
        shape = (model.neighborhood.n_neighbors, model.neighborhood.bandwidth, continuations.shape)
        groups.setdefault(shape, []).append(_Neighbors(index, model, distances, continuations, level))
    forecasts: dict[int, Forecasts] = {}
    for group in groups.values():
        expected = _expected_counts(group)
        lower, upper = intervals_of([found.model.bands for found in group], expected)
        for i, found in enumerate(group):
            forecasts[found.position] = Forecasts(expected[i : i + 1], lower[i : i + 1], upper[i : i + 1])
    return [forecasts[index] for index in range(len(models))]


def _expected_counts(group: Sequence[_Neighbors]) -> Array:
    weights = mean_weights(np.array([found.distances for found in group]), group[0].model.neighborhood)
    continuations = np.array([found.continuations for found in group])  # (m, k, n_horizons)
    known = ~np.isnan(continuations)
    shares = weights[:, :, None] * known
    total = shares.sum(axis=1)
    # Where no neighbour has a continuation, the forecast is the level alone.
    means = np.sum(shares * np.where(known, continuations, 0.0), axis=1) / np.where(total > 0.0, total, 1.0)
    levels = np.array([found.level * found.model.level_shares for found in group])
    scales = np.array([[found.model.scale, found.model.center] for found in group])
    return np.asarray(np.maximum((means + levels) * scales[:, :1] + scales[:, 1:], 0.0))
