"""Slow, obvious implementations that tests compare the library with."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def slow_neighbors(query: Array, memory: Array, k: int) -> list[tuple[float, int]]:
    """Return (squared distance, row) of the k nearest, ties by row."""
    return sorted((float(sum((query - row) ** 2)), i) for i, row in enumerate(memory))[:k]


def slow_kr(query: Array, memory: Array, targets: Array, k: int, bandwidth: float) -> tuple[float, float]:
    """Return equations 5 and 6 as written, up to a common factor of all kernel values, and the spread."""
    near = slow_neighbors(query, memory, k)
    kernel = [exp(-(d - near[0][0]) / (2 * bandwidth**2)) for d, _ in near]
    total = sum(kernel)
    mean = sum(w * targets[i] for w, (_, i) in zip(kernel, near, strict=True)) / total
    spread = sqrt(sum(w * (targets[i] - mean) ** 2 for w, (_, i) in zip(kernel, near, strict=True)) / total)
    return mean, spread


def slow_leave_one_out(
    metric: Array, inputs: Array, targets: Array, k: int, bandwidth: float, exclusion: int = 0
) -> tuple[list[float], list[list[tuple[int, float]]]]:
    """Return estimates and lists of (row, weight), without the neighbours that are excluded."""
    estimates, neighbors = [], []
    for i in range(len(targets)):
        gaps = inputs[i] - inputs
        distances = [float(g @ metric @ g) for g in gaps]
        allowed = sorted((d, j) for j, d in enumerate(distances) if abs(i - j) > exclusion)[:k]
        kernel = [exp(-(d - allowed[0][0]) / (2 * bandwidth**2)) for d, _ in allowed]
        weights = [(j, w / sum(kernel)) for (_, j), w in zip(allowed, kernel, strict=True)]
        estimates.append(sum(w * targets[j] for j, w in weights))
        neighbors.append(weights)
    return estimates, neighbors


def paper_listing(
    inputs: Array, targets: Array, k: int, bandwidth: float, mu: float, alpha: float, theta: float, most: int
) -> tuple[list[Array], list[float]]:
    """Run the paper's listing with its own sums, raw targets and equation 20 as printed."""
    d = inputs.shape[1]

    def objective(metric: Array) -> float:
        estimates, _ = slow_leave_one_out(metric, inputs, targets, k, bandwidth)
        errors = sum((y - p) ** 2 for y, p in zip(targets, estimates, strict=True))
        return float(errors + mu * np.trace(metric))

    metrics, objectives = [np.eye(d)], [objective(np.eye(d))]
    for _ in range(most):
        metric = metrics[-1]
        estimates, neighbors = slow_leave_one_out(metric, inputs, targets, k, bandwidth)
        gradient = mu * np.eye(d)
        for i, weights in enumerate(neighbors):
            for j, weight in weights:
                gap = inputs[i] - inputs[j]
                coefficient = (estimates[i] - targets[i]) * (estimates[i] - targets[j]) * weight
                gradient = gradient + 2 * coefficient * np.outer(gap, gap)
        values, vectors = np.linalg.eigh(metric - alpha * gradient)
        metrics.append(vectors @ np.diag(np.maximum(values, 0)) @ vectors.T)
        objectives.append(objective(metrics[-1]))
        if abs(objectives[-1] - objectives[-2]) <= theta:
            break
    return metrics, objectives
