"""Forecasts of many links at once, each from one window by its own model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from model.estimators.kernel import Array
from model.link_model.trained_model import Forecasts, TrainedModel, level_of, mean_weights


class _Asked(NamedTuple):
    """One model's neighbours of its window."""

    place: int
    model: TrainedModel
    distances: Array  # (k,)
    followed: Array  # (k, n_horizons)
    level: Array  # (1,)


def forecast_each(models: Sequence[TrainedModel], windows: Iterable[Array]) -> list[Forecasts]:
    """Forecast from windows, (1, d) each, by as many models; the same as asking each, but for rounding.

    Finding neighbours is each model's own work. What follows is small, and done for all models that
    are alike at once: call by call it would take as long as the neighbours.
    """
    alike: dict[tuple[int, float, tuple[int, ...], tuple[int, ...]], list[_Asked]] = {}
    for place, (model, window) in enumerate(zip(models, windows, strict=True)):
        rows, distances, scaled = model.nearest(window)
        if model.bands is None:
            raise ValueError("the model has no bands yet; training gives them")
        asked = _Asked(place, model, distances, model.continuations.values(rows), level_of(scaled, model.window))
        shape = (
            model.neighborhood.n_neighbors,
            model.neighborhood.bandwidth,
            asked.followed.shape,
            model.bands.edges.shape,
        )
        alike.setdefault(shape, []).append(asked)
    found: list[Forecasts | None] = [None] * len(models)
    for group in alike.values():
        for asked, forecasts in zip(group, _together(group), strict=True):
            found[asked.place] = forecasts
    return [forecasts for forecasts in found if forecasts is not None]


def _together(group: Sequence[_Asked]) -> list[Forecasts]:
    weights = mean_weights(np.array([asked.distances for asked in group]), group[0].model.neighborhood)
    followed = np.array([asked.followed for asked in group])  # (m, k, n_horizons)
    known = ~np.isnan(followed)
    shares = weights[:, :, None] * known
    total = shares.sum(axis=1)
    # Where none of the neighbours was followed by a count, the level alone is left.
    means = np.sum(shares * np.where(known, followed, 0.0), axis=1) / np.where(total > 0.0, total, 1.0)
    levels = np.array([asked.level * asked.model.level_shares for asked in group])
    scales = np.array([[asked.model.scale, asked.model.center] for asked in group])
    expected = np.maximum((means + levels) * scales[:, :1] + scales[:, 1:], 0.0)
    lower, upper = _around(group, expected)
    return [Forecasts(expected[i : i + 1], lower[i : i + 1], upper[i : i + 1]) for i in range(len(group))]


def _around(group: Sequence[_Asked], expected: Array) -> tuple[Array, Array]:
    """Put each model's bands around what it expects, as ``Bands.around`` does for one."""
    bands = [asked.model.bands for asked in group if asked.model.bands is not None]
    edges = np.array([one.edges for one in bands])  # (m, n_horizons, n_bins - 1)
    places = (expected[:, :, None] >= edges).sum(axis=2)[:, :, None]
    below = np.take_along_axis(np.array([one.below for one in bands]), places, axis=2)[:, :, 0]
    above = np.take_along_axis(np.array([one.above for one in bands]), places, axis=2)[:, :, 0]
    return np.maximum(np.minimum(expected + below, expected), 0.0), np.maximum(expected + above, expected)
