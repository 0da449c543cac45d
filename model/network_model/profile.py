"""Historical profiles learnt over the whole network, because one link has few days of each weekday.

The mean of three Saturdays is noisy. So a link's profile is the sum of parts that are estimated from many
counts. The first is the link's own mean by day type. It is averaged with a fit by the shapes of all links'
profiles, which also covers day types that a link has no counts of. The last is the difference of weekdays
from their day type: a smooth part of low rank that links share, and half of the remainder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.network_model.series import DAY_TYPES

Array = NDArray[np.float64]

SHAPES = 8  # number of shapes that a link's profile is fitted by, beside the network's mean
SHAPE_DAYS = 2.0  # the weight of the fit, in days of the link's own
NOISE = 0.05  # variance of one day's count about its profile, relative to the square of the link's level
LEVEL_VARIANCE = 0.05  # of a link's level about the mean of its days
SHARED_RANK, SHARED_WEIGHT, OWN_WEIGHT = 2, 0.9, 0.5
# Smoothing over the time of day at 96 slots a day: weights of the adjacent slots, or half-width of a triangle.
WEEKDAY_SIDE, SHAPE_SIDE = 0.15, 0.25
WEEKEND_REACH, DIFFERENCE_REACH = 2, 3
REFERENCE_SLOTS = 96


@dataclass(frozen=True)
class NetworkProfile:
    """Mean counts of each link by weekday and slot of the day, (n_links, 7, slots_per_day) each.

    ``by_day_type`` differs by three types of days, ``expected_counts`` by all seven weekdays. The profile
    of a link without counts is NaN.
    """

    expected_counts: Array
    by_day_type: Array

    @classmethod
    def learn(cls, by_day: Array, weekday: NDArray[np.int64]) -> NetworkProfile:
        """Learn from counts by day, (n_links, days, slots_per_day), and each day's weekday."""
        sums, days = _sums(by_day, weekday)
        own = _day_type_means(sums, days)
        fitted = _fit_shapes(sums, days, own)
        seen = np.stack([days[:, kind == DAY_TYPES].sum(axis=1) for kind in range(3)], axis=1)[:, DAY_TYPES]
        by_type = np.where(np.isnan(own), fitted, _smoothed(np.where(np.isnan(own), fitted, own)))
        weight = SHAPE_DAYS / (seen + SHAPE_DAYS)
        by_type = (1.0 - weight) * by_type + weight * fitted
        level = np.maximum(by_type.mean(axis=(1, 2)), 1e-9)
        means = np.where(days > 0, sums / np.maximum(days, 1.0), np.nan)
        differences = np.nan_to_num((means - own) / level[:, None, None])  # 0 where there are no counts
        differences = _around_the_week(differences, _triangle(DIFFERENCE_REACH, by_day.shape[2]))
        shared = _of_rank(differences, SHARED_RANK)
        differences = SHARED_WEIGHT * shared + OWN_WEIGHT * (differences - shared)
        return cls(np.maximum(by_type + differences * level[:, None, None], 0.0), np.maximum(by_type, 0.0))

    @property
    def center(self) -> Array:
        """Mean of each link's weekly profile, (n_links,)."""
        return np.asarray(self.expected_counts.mean(axis=(1, 2), dtype=np.float64))

    @property
    def scale(self) -> Array:
        """The unit of each link's standardised counts, (n_links,)."""
        return scale_of(self.expected_counts)


def scale_of(expected_counts: Array) -> Array:
    """Return the unit of links' counts, the standard deviation of their profiles, (…, 7, slots_per_day).

    It is at least the square root of the mean, the standard deviation of Poisson counts. Otherwise links with
    very few vehicles, or with a constant profile, would deviate by dozens of units and dominate shared weights.
    For a link without traffic it is 1.
    """
    spread = expected_counts.std(axis=(-2, -1), dtype=np.float64)
    unit = np.maximum(spread, np.sqrt(expected_counts.mean(axis=(-2, -1), dtype=np.float64)))
    return np.where(unit > 0.0, unit, 1.0)


def _sums(by_day: Array, weekday: NDArray[np.int64]) -> tuple[Array, Array]:
    shape = (len(by_day), 7, by_day.shape[2])
    sums, days = np.zeros(shape), np.zeros(shape)
    known = ~np.isnan(by_day)
    values = np.where(known, by_day, 0.0)
    for day in range(7):
        sums[:, day] = values[:, weekday == day].sum(axis=1)
        days[:, day] = known[:, weekday == day].sum(axis=1)
    return sums, days


def _day_type_means(sums: Array, days: Array) -> Array:
    """Return means by day type, (n_links, 7, slots_per_day); NaN where there is no count."""
    means = np.empty(sums.shape)
    for kind in range(3):
        alike = kind == DAY_TYPES
        seen = days[:, alike].sum(axis=1)
        mean = np.where(seen > 0, sums[:, alike].sum(axis=1) / np.maximum(seen, 1.0), np.nan)
        means[:, alike] = mean[:, None]
    return means


def _fit_shapes(sums: Array, days: Array, own: Array) -> Array:
    """Fit each link's profile by the mean shape of the network's links and their principal components.

    Weights have a Gaussian prior, so that the fit of a link with one day is near the mean shape, and that
    of a link with weeks is near its own counts.
    """
    n, cells = len(sums), sums[0].size
    whole = ~np.isnan(own).any(axis=(1, 2))
    if not whole.any():  # a network with a short history
        return np.where(np.isnan(own), _time_of_day_means(sums, days), own)
    levels = own[whole].mean(axis=(1, 2))
    shapes = own[whole] / np.maximum(levels, 1e-9)[:, None, None]
    shapes = _around_the_week(shapes, _side_weights(SHAPE_SIDE, sums.shape[2]))
    mean = shapes.mean(axis=0).ravel()
    _, spread, directions = np.linalg.svd(shapes.reshape(len(shapes), cells) - mean, full_matrices=False)
    n_shapes = min(SHAPES, max(len(shapes) - 1, 0))
    basis = np.concatenate([mean[None], directions[:n_shapes]])
    variances = np.concatenate([[LEVEL_VARIANCE], np.maximum(spread[:n_shapes] ** 2 / len(shapes), 1e-9)])
    seen = days.reshape(n, cells)
    level = sums.sum(axis=(1, 2)) / np.maximum(seen @ mean, 1e-9)
    level = np.where(seen.any(axis=1), level, np.nan)
    deviations = np.where(seen > 0, sums.reshape(n, cells) / np.maximum(seen, 1.0), 0.0)
    deviations = deviations / np.maximum(level, 1e-9)[:, None] - mean
    # Normal equations of all links at once; in the Gram matrices each cell is weighted by its number of days.
    products = (basis[:, None, :] * basis[None, :, :]).reshape(-1, cells)
    grams = (seen @ products.T).reshape(n, len(basis), len(basis)) / NOISE + np.diag(1.0 / variances)
    right = np.nan_to_num(seen * deviations) @ basis.T / NOISE
    weights = np.linalg.solve(grams, right[:, :, None])[:, :, 0]
    return np.asarray((level[:, None] * (mean + weights @ basis)).reshape(sums.shape))


def _time_of_day_means(sums: Array, days: Array) -> Array:
    seen = days.sum(axis=1)
    of_day = np.where(seen > 0, sums.sum(axis=1) / np.maximum(seen, 1.0), np.nan)
    overall = sums.sum(axis=(1, 2)) / np.maximum(days.sum(axis=(1, 2)), 1e-9)
    overall = np.where(days.any(axis=(1, 2)), overall, np.nan)
    return np.broadcast_to(np.where(np.isnan(of_day), overall[:, None], of_day)[:, None], sums.shape)


def _smoothed(by_type: Array) -> Array:
    """Smooth over the time of day; more on the weekend, which has fewer days."""
    slots_per_day = by_type.shape[2]
    out = _around_the_week(by_type, _side_weights(WEEKDAY_SIDE, slots_per_day))
    out[:, 5:] = _around_the_week(by_type, _triangle(WEEKEND_REACH, slots_per_day))[:, 5:]
    return out


def _side_weights(side: float, slots_per_day: int) -> tuple[float, ...]:
    """Return weights of a slot and the two adjacent ones; these are smaller for long slots."""
    side *= min(1.0, slots_per_day / REFERENCE_SLOTS)
    return side, 1.0 - 2.0 * side, side


def _triangle(reach: int, slots_per_day: int) -> tuple[float, ...]:
    """Return triangular weights over ``reach`` slots to either side, fewer for long slots."""
    half = round(reach * slots_per_day / REFERENCE_SLOTS)
    weights = half + 1 - np.abs(np.arange(-half, half + 1))
    return tuple((weights / weights.sum()).tolist())


def _around_the_week(tables: Array, weights: tuple[float, ...]) -> Array:
    weeks = tables.reshape(len(tables), -1)
    half = len(weights) // 2
    out = sum(weight * np.roll(weeks, place - half, axis=1) for place, weight in enumerate(weights))
    return np.asarray(out).reshape(tables.shape)


def _of_rank(tables: Array, rank: int) -> Array:
    left, spread, right = np.linalg.svd(tables.reshape(len(tables), -1), full_matrices=False)
    return np.asarray((left[:, :rank] * spread[:rank]) @ right[:rank]).reshape(tables.shape)
