"""Solvers that minimise an objective over metrics: each yields its steps, and ``descend`` iterates over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from model.estimators.kernel import Array
from model.estimators.parameters import LARGEST_VALUE

Loss = Callable[[Array], tuple[float, Array]]
"""Maps A, (r, d), to the loss and its gradient with respect to M = A.T @ A, (d, d)."""
OnEvaluation = Callable[[], object]
"""Called before each evaluation of a loss; an exception that it raises ends the descent."""

# Eigenvalues below this share of the largest are rounding errors and do not count towards the rank.
RANK_TOLERANCE = 1e-9
# Local coordinates are those of M + floor * (largest eigenvalue) * I. A floor of 1 lets eigenvalues
# reach zero exactly and keeps the metric sparse; a lower one then settles the scales along the others.
FLOORS = (1.0, 0.1, 0.01)
SETTLED_STEPS = 5  # the objective has settled when this many steps decrease it by less than tol each
MIN_OBJECTIVE_SCALE = 1e-3  # share of the targets' variance below which decreases are no longer relative
BACKTRACKS = 8
SHRINK = 0.4
ARMIJO_CONSTANT = 1e-4
TIE_TOLERANCE = 1.02  # held-out squared errors within two per cent of each other count as equal
PATIENCE = 6  # steps without a better held-out error before stopping


class Step(NamedTuple):
    """One point of a descent; the first is its start."""

    components: Array  # A, (r, d)
    objective: float


class Descent(NamedTuple):
    """The result of a descent: its last step, or the first whose held-out error ties with the least."""

    components: Array
    objectives: list[float]
    held_out_errors: list[float]
    converged: bool

    @property
    def n_iter(self) -> int:
        """Number of steps that lead to ``components``."""
        return len(self.objectives) - 1


def descend(
    steps: Iterator[Step],
    max_iter: int,
    held_out_error: Callable[[Array], float] | None = None,
    report: Callable[[int, Step], None] | None = None,
) -> Descent:
    """Run a solver until it ends, ``max_iter`` is reached or the held-out error stops falling."""
    taken: list[Step] = []
    errors: list[float] = []
    converged = True
    for number, step in enumerate(islice(steps, max_iter + 1)):
        taken.append(step)
        if report is not None:
            report(number, step)
        if held_out_error is not None:
            errors.append(held_out_error(step.components))
            if number - int(np.argmin(errors)) >= PATIENCE:
                break
    else:
        converged = len(taken) <= max_iter  # otherwise islice cut the solver off
    # Among ties the earliest step is kept, because the metric overfits long before the held-out error shows it.
    best = int(np.argmax(np.array(errors) <= TIE_TOLERANCE * min(errors))) if errors else len(taken) - 1
    objectives = [step.objective for step in taken[: best + 1]]
    return Descent(taken[best].components, objectives, errors[: best + 1], converged)


def factor(metric: Array) -> Array:
    """Return A, one row per rank, largest first, with A.T @ A = metric up to rounding, (rank, d)."""
    values, vectors = np.linalg.eigh(metric)
    kept = np.flatnonzero(values > RANK_TOLERANCE * max(values[-1], 0.0))[::-1]
    rows = (vectors[:, kept] * np.sqrt(values[kept])).T
    largest = np.abs(rows).argmax(axis=1)
    return np.asarray(rows * np.sign(rows[np.arange(len(rows)), largest])[:, None])


def proximal_steps(loss: Loss, start: Array, mu: float, tol: float) -> Iterator[Step]:
    """Minimise loss + mu Tr(M) over the PSD cone by proximal steps with backtracking.

    Each step is equation 21 and its projection, M' = [M - alpha (G + mu I)]+, taken in the local
    coordinates P^-1 M P^-1 with P^2 = M + floor * (largest eigenvalue) * I. There the metric is
    well scaled, and the trace is linear, so the projection is still the exact proximal step.
    The step length starts from Barzilai and Borwein's and shrinks until the objective decreases.
    """
    components = factor(start)
    value, gradient = loss(components)
    point = _Point(start, components, value + mu * float(np.trace(start)), gradient + mu * np.eye(len(start)))
    yield Step(point.components, point.objective)
    for floor in FLOORS:
        recent = [point.objective]
        previous: _Point | None = None
        step_length: float | None = None
        while True:
            next_point, step_length = _proximal_step(loss, mu, point, previous, floor, step_length)
            if next_point is None:
                break
            previous, point = point, next_point
            yield Step(point.components, point.objective)
            recent.append(point.objective)
            if _has_settled(recent, tol):
                break


class _Point(NamedTuple):
    metric: Array
    components: Array
    objective: float
    gradient: Array  # of the whole objective, penalty included


def _proximal_step(
    loss: Loss, mu: float, point: _Point, previous: _Point | None, floor: float, step_length: float | None
) -> tuple[_Point | None, float]:
    values, vectors = np.linalg.eigh(point.metric)
    values = np.maximum(values, 0.0)
    scales = np.sqrt(values + floor * values[-1])
    to_local, from_local = (vectors / scales).T, vectors * scales  # P^-1 and P, up to a rotation
    current = np.diag(values / scales**2)
    slope = from_local.T @ point.gradient @ from_local
    if previous is None or step_length is None:
        step_length = initial_step_length(current, slope)
    else:
        change = to_local @ (point.metric - previous.metric) @ to_local.T
        step_length = next_step_length(
            change, from_local.T @ (point.gradient - previous.gradient) @ from_local, step_length
        )
    identity = np.eye(len(values))
    for _ in range(BACKTRACKS):
        shares, axes = np.linalg.eigh(current - step_length * slope)
        shares = np.maximum(shares, 0.0)
        if shares[-1] > 0.0:  # under a metric of rank zero all rows are equally near
            kept = shares > RANK_TOLERANCE * shares[-1]
            components = ((from_local @ axes[:, kept]) * np.sqrt(shares[kept])).T
            metric = components.T @ components
            value, gradient = loss(components)
            objective = value + mu * float(np.trace(metric))
            squared_distance = float(np.sum(((axes * shares) @ axes.T - current) ** 2))
            if objective < point.objective - ARMIJO_CONSTANT * squared_distance / step_length:
                return _Point(metric, components, objective, gradient + mu * identity), step_length
        step_length *= SHRINK
    return None, step_length


def paper_steps(loss: Loss, start: Array, mu: float, alpha: float, theta: float) -> Iterator[Step]:
    """Run the paper's listing: M - alpha G, projected, until |L(M_t) - L(M_t-1)| <= theta.

    ``loss`` must return the gradient with the paper's own factor, 2 (equation 19).
    """
    metric, previous_objective = start, np.inf
    while True:
        components = factor(metric)
        value, gradient = loss(components)
        objective = value + mu * float(np.trace(metric))
        yield Step(components, objective)
        if abs(objective - previous_objective) <= theta:
            return
        previous_objective = objective
        values, vectors = np.linalg.eigh(metric - alpha * (gradient + mu * np.eye(len(metric))))
        metric = (vectors * np.maximum(values, 0.0)) @ vectors.T
        _check_alpha(alpha, metric)


def transformation_steps(loss: Loss, start: Array, mu: float, tol: float) -> Iterator[Step]:
    """Minimise loss + mu Tr(A.T A) over A (equation 9), dL/dA = 2 A dL/dM, with backtracking."""
    current, penalty = factor(start), mu * np.eye(len(start))
    value, gradient = loss(current)
    objective = value + mu * float(np.sum(current**2))
    slope = 2.0 * current @ (gradient + penalty)
    yield Step(current, objective)
    recent = [objective]
    step_length = initial_step_length(current, slope)
    while not _has_settled(recent, tol):
        for _ in range(BACKTRACKS):
            candidate = current - step_length * slope
            value, gradient = loss(candidate)
            reached = value + mu * float(np.sum(candidate**2))
            if reached < objective - ARMIJO_CONSTANT * step_length * float(np.sum(slope**2)):
                break
            step_length *= SHRINK
        else:
            return
        new_slope = 2.0 * candidate @ (gradient + penalty)
        step_length = next_step_length(candidate - current, new_slope - slope, step_length)
        current, slope, objective = candidate, new_slope, reached
        yield Step(current, objective)
        recent.append(objective)


def constant_transformation_steps(loss: Loss, start: Array, mu: float, alpha: float, theta: float) -> Iterator[Step]:
    """Run equation 9 with a constant alpha until |L(A_t) - L(A_t-1)| <= theta."""
    current, previous_objective, identity = factor(start), np.inf, np.eye(len(start))
    while True:
        value, gradient = loss(current)
        objective = value + mu * float(np.sum(current**2))
        yield Step(current, objective)
        if abs(objective - previous_objective) <= theta:
            return
        previous_objective = objective
        current = current - alpha * 2.0 * current @ (gradient + mu * identity)
        _check_alpha(alpha, current)


def initial_step_length(current: Array, slope: Array) -> float:
    """Return the length of a first step, which moves by a tenth of the current norm."""
    steepness = float(np.linalg.norm(slope))
    return 0.1 * float(np.linalg.norm(current)) / steepness if steepness > 0.0 else 1.0


def next_step_length(change: Array, gradient_change: Array, step_length: float) -> float:
    """Return Barzilai and Borwein's step length, at most ten times longer or shorter than the last."""
    curvature = float(np.sum(change * gradient_change))
    proposed = float(np.sum(change**2)) / curvature if curvature > 0.0 else 2.0 * step_length
    return min(max(proposed, 0.1 * step_length), 10.0 * step_length)


def _check_alpha(alpha: float, reached: Array) -> None:
    if not np.abs(reached).max() <= LARGEST_VALUE:
        raise ValueError(f"alpha={alpha!r} is refused: steps of that length diverge; choose a smaller alpha")


def _has_settled(objectives: list[float], tol: float) -> bool:
    if len(objectives) <= SETTLED_STEPS:
        return False
    return objectives[-1 - SETTLED_STEPS] - objectives[-1] <= SETTLED_STEPS * tol * max(
        objectives[-1], MIN_OBJECTIVE_SCALE
    )
