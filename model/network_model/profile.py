"""Profiles learnt over the whole network: what one link has too few days for, others have seen.

The mean of three Saturdays is noisy. So each link's profile is made of parts that many counts speak
for: the link's own mean by day type; how it lies in the space of shapes that the network's links
have, which also completes days a young link has never seen; and by weekday what differs from the day
type, which links largely share, as a smooth part of low rank and half of what that leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.network_model.series import DAY_TYPES

Array = NDArray[np.float64]

SHAPES = 8  # that a link's profile may be made of, beside the network's mean
SHAPE_DAYS = 2.0  # what the shapes say weighs as much as so many days of the link's own
NOISE = 0.05  # variance of one day's count about its profile, relative to the square of the link's level
LEVEL_VARIANCE = 0.05  # of a link's level about what its few days say
SHARED_RANK, SHARED_WEIGHT, OWN_WEIGHT = 2, 0.9, 0.5
# How far to smooth over the time of day, at 96 slots a day: weights of the slots beside, or reach of a triangle.
WEEKDAY_SIDE, SHAPE_SIDE = 0.15, 0.25
WEEKEND_REACH, DIFFERENCE_REACH = 2, 3
USUAL_SLOTS = 96


@dataclass(frozen=True)
class NetworkProfile:
    """What each link usually counts, by weekday and slot of the day, (n_links, 7, slots_per_day) each.

    ``by_day_type`` knows three kinds of days, ``expected_counts`` all seven. A link with no count at all
    has NaN.
    """

    expected_counts: Array
    by_day_type: Array

    @classmethod
    def learn(cls, by_day: Array, weekday: NDArray[np.int64]) -> NetworkProfile:
        """Learn from counts by day, (n_links, days, slots_per_day), and each day's weekday."""
        sums, days = _sums(by_day, weekday)
        own = _day_type_means(sums, days)
        shaped = _shaped(sums, days, own)
        seen = np.stack([days[:, kind == DAY_TYPES].sum(axis=1) for kind in range(3)], axis=1)[:, DAY_TYPES]
        by_type = np.where(np.isnan(own), shaped, _smoothed(np.where(np.isnan(own), shaped, own)))
        weight = SHAPE_DAYS / (seen + SHAPE_DAYS)
        by_type = (1.0 - weight) * by_type + weight * shaped
        level = np.maximum(by_type.mean(axis=(1, 2)), 1e-9)
        means = np.where(days > 0, sums / np.maximum(days, 1.0), np.nan)
        differences = np.nan_to_num((means - own) / level[:, None, None])  # nothing where nothing was seen
        differences = _around_the_week(differences, _triangle(DIFFERENCE_REACH, by_day.shape[2]))
        shared = _of_rank(differences, SHARED_RANK)
        differences = SHARED_WEIGHT * shared + OWN_WEIGHT * (differences - shared)
        return cls(np.maximum(by_type + differences * level[:, None, None], 0.0), np.maximum(by_type, 0.0))

    @property
    def center(self) -> Array:
        """Mean of each link's week, (n_links,)."""
        return np.asarray(self.expected_counts.mean(axis=(1, 2), dtype=np.float64))

    @property
    def scale(self) -> Array:
        """The unit each link's counts are measured in, (n_links,)."""
        return scale_of(self.expected_counts)


def scale_of(expected_counts: Array) -> Array:
    """Return the unit of links' counts from their weeks, (…, 7, slots_per_day): the spread; 1 for a link of nothing.

    It is no less than chance alone would make it, the root of the mean: a link of one vehicle now and then, or of
    the same count all day, would else deviate by dozens of units, and drown the others in what they share.
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
    """Average over the days of a kind, (n_links, 7, slots_per_day); NaN where none was seen."""
    means = np.empty(sums.shape)
    for kind in range(3):
        alike = kind == DAY_TYPES
        seen = days[:, alike].sum(axis=1)
        mean = np.where(seen > 0, sums[:, alike].sum(axis=1) / np.maximum(seen, 1.0), np.nan)
        means[:, alike] = mean[:, None]
    return means


def _shaped(sums: Array, days: Array, own: Array) -> Array:
    """Fit each link by the shapes of the network's links: a mean, and how links differ from it.

    The weights of the shapes are what counts and a Gaussian prior say together, so that a link with
    one day leans on the mean shape and one with weeks on its own.
    """
    n, cells = len(sums), sums[0].size
    whole = ~np.isnan(own).any(axis=(1, 2))
    if not whole.any():  # a young network: the days it has stand for those it has not
        return np.where(np.isnan(own), _time_of_day_means(sums, days), own)
    levels = own[whole].mean(axis=(1, 2))
    shapes = own[whole] / np.maximum(levels, 1e-9)[:, None, None]
    shapes = _around_the_week(shapes, _beside(SHAPE_SIDE, sums.shape[2]))
    mean = shapes.mean(axis=0).ravel()
    _, spread, directions = np.linalg.svd(shapes.reshape(len(shapes), cells) - mean, full_matrices=False)
    most = min(SHAPES, max(len(shapes) - 1, 0))
    basis = np.concatenate([mean[None], directions[:most]])
    variances = np.concatenate([[LEVEL_VARIANCE], np.maximum(spread[:most] ** 2 / len(shapes), 1e-9)])
    seen = days.reshape(n, cells)
    level = sums.sum(axis=(1, 2)) / np.maximum(seen @ mean, 1e-9)
    level = np.where(seen.any(axis=1), level, np.nan)
    strays = np.where(seen > 0, sums.reshape(n, cells) / np.maximum(seen, 1.0), 0.0)
    strays = strays / np.maximum(level, 1e-9)[:, None] - mean
    # Normal equations of all links at once: a Gram matrix of the shapes, each cell weighted by its days.
    products = (basis[:, None, :] * basis[None, :, :]).reshape(-1, cells)
    grams = (seen @ products.T).reshape(n, len(basis), len(basis)) / NOISE + np.diag(1.0 / variances)
    right = np.nan_to_num(seen * strays) @ basis.T / NOISE
    weights = np.linalg.solve(grams, right[:, :, None])[:, :, 0]
    return np.asarray((level[:, None] * (mean + weights @ basis)).reshape(sums.shape))


def _time_of_day_means(sums: Array, days: Array) -> Array:
    seen = days.sum(axis=1)
    of_day = np.where(seen > 0, sums.sum(axis=1) / np.maximum(seen, 1.0), np.nan)
    overall = sums.sum(axis=(1, 2)) / np.maximum(days.sum(axis=(1, 2)), 1e-9)
    overall = np.where(days.any(axis=(1, 2)), overall, np.nan)
    return np.broadcast_to(np.where(np.isnan(of_day), overall[:, None], of_day)[:, None], sums.shape)


def _smoothed(by_type: Array) -> Array:
    """Smooth a little where there are many days, more on the few days of a weekend."""
    slots_per_day = by_type.shape[2]
    out = _around_the_week(by_type, _beside(WEEKDAY_SIDE, slots_per_day))
    out[:, 5:] = _around_the_week(by_type, _triangle(WEEKEND_REACH, slots_per_day))[:, 5:]
    return out


def _beside(side: float, slots_per_day: int) -> tuple[float, ...]:
    """Return weights of a slot and the two beside it, which weigh less where slots are long."""
    side *= min(1.0, slots_per_day / USUAL_SLOTS)
    return side, 1.0 - 2.0 * side, side


def _triangle(reach: int, slots_per_day: int) -> tuple[float, ...]:
    """Return weights that fall off over so many slots to either side, fewer where slots are long."""
    half = round(reach * slots_per_day / USUAL_SLOTS)
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
