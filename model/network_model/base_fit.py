"""Fitting of the linear base, and of each link's own weights, from sums that are accumulated day by day."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.network_model.network import Base

Array = NDArray[np.float64]


class NormalEquations:
    """Sums over rows, link by link, from which any ridge regression on these rows can be solved.

    Memory: n_links * n_columns^2, independent of the number of rows.
    """

    def __init__(self, n_links: int, n_columns: int) -> None:
        self.n = np.zeros(n_links)
        self.sums = np.zeros((n_links, n_columns))
        self.products = np.zeros((n_links, n_columns, n_columns))
        self.targets = np.zeros(n_links)
        self.squared_targets = np.zeros(n_links)
        self.with_targets = np.zeros((n_links, n_columns))

    def add(self, columns: Array, targets: Array) -> None:
        """Add rows, (n_links, n_rows, n_columns), and their targets, NaN where there is none."""
        known = ~(np.isnan(targets) | np.isnan(columns).any(axis=2))
        rows, observed = np.where(known[:, :, None], columns, 0.0), np.where(known, targets, 0.0)
        self.n += known.sum(axis=1)
        self.sums += rows.sum(axis=1)
        self.products += np.matmul(rows.transpose(0, 2, 1), rows)
        self.targets += observed.sum(axis=1)
        self.squared_targets += (observed**2).sum(axis=1)
        self.with_targets += np.matmul(observed[:, None, :], rows)[:, 0]

    def plus(self, other: NormalEquations) -> NormalEquations:
        """Return the sums over the rows of both."""
        both = NormalEquations(*self.sums.shape)
        for name, values in vars(self).items():
            setattr(both, name, values + getattr(other, name))
        return both

    def squared_errors(self, base: Base, h: int, own: Array | None = None) -> Array:
        """Return each link's mean squared error under a base and, (n_links, n_columns), its own weights."""
        grams, right = self.standardised(base.mean[h], base.scale[h], float(base.offset[h]))
        weights = np.broadcast_to(base.weights[h], right.shape) + (0.0 if own is None else own)
        centred = self.squared_targets - 2.0 * base.offset[h] * self.targets + self.n * base.offset[h] ** 2
        explained = 2.0 * np.einsum("lp,lp->l", weights, right)
        spent = np.einsum("lp,lpq,lq->l", weights, grams, weights)
        return np.asarray((centred - explained + spent) / np.maximum(self.n, 1.0))

    def standardisation(self) -> tuple[Array, Array]:
        """Return mean and standard deviation of the columns over all links."""
        n = self.n.sum()
        mean = self.sums.sum(axis=0) / n
        variance = np.einsum("lii->i", self.products) / n - mean**2
        spread = np.sqrt(np.maximum(variance, 0.0))
        return mean, np.where(spread > 1e-9, spread, 1.0)

    def standardised(self, mean: Array, scale: Array, offset: float) -> tuple[Array, Array]:
        """Return each link's Gram matrix and right-hand side for standardised columns and centred targets."""
        crossed = self.sums[:, :, None] * mean
        grams = self.products - crossed - crossed.transpose(0, 2, 1) + self.n[:, None, None] * np.outer(mean, mean)
        right = self.with_targets - offset * self.sums - (self.targets - offset * self.n)[:, None] * mean
        return grams / np.outer(scale, scale), right / scale


def fit_base(equations: Sequence[NormalEquations], ridge: Sequence[float], scaling: Base | None = None) -> Base:
    """Solve for the weights shared by all links, with a penalty for each horizon; infinity gives weights of 0.

    Columns are standardised as those of the base ``scaling``, if it is given.
    """
    parts = []
    for h, (sums, penalty) in enumerate(zip(equations, ridge, strict=True)):
        mean, scale = sums.standardisation() if scaling is None else (scaling.mean[h], scaling.scale[h])
        if np.isinf(penalty):
            parts.append((mean, scale, np.zeros(len(mean)), 0.0))
            continue
        offset = float(sums.targets.sum() / sums.n.sum())
        grams, right = sums.standardised(mean, scale, offset)
        weights = np.linalg.solve(grams.sum(axis=0) + penalty * np.eye(len(mean)), right.sum(axis=0))
        parts.append((mean, scale, weights, offset))
    return Base(*(np.array(part) for part in zip(*parts, strict=True)))


def fit_own(equations: Sequence[NormalEquations], base: Base, ridge: Sequence[float]) -> Array:
    """Solve for each link's additions to the base's weights, (n_links, n_horizons, n_columns); infinity gives 0."""
    own = []
    for h, (sums, penalty) in enumerate(zip(equations, ridge, strict=True)):
        grams, right = sums.standardised(base.mean[h], base.scale[h], float(base.offset[h]))
        if np.isinf(penalty):
            own.append(np.zeros(right.shape))
            continue
        residuals = right - grams @ base.weights[h]
        own.append(np.linalg.solve(grams + penalty * np.eye(grams.shape[1]), residuals[:, :, None])[:, :, 0])
    return np.stack(own, axis=1)


def fit_alone(equations: Sequence[NormalEquations], base: Base, ridge: Array) -> Array:
    """Solve for the weights of each link without the base, (n_links, n_horizons, n_columns).

    Penalties are (n_links, n_horizons). Columns are standardised as those of the base.
    """
    alone = []
    for h, sums in enumerate(equations):
        grams, right = sums.standardised(base.mean[h], base.scale[h], float(base.offset[h]))
        penalties = ridge[:, h, None, None] * np.eye(grams.shape[1])
        alone.append(np.linalg.solve(grams + penalties, right[:, :, None])[:, :, 0])
    return np.stack(alone, axis=1)
