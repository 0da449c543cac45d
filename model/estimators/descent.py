"""Ways down an objective over metrics: each solver yields its steps, and one driver walks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from model.estimators.kernel import Array
from model.estimators.parameters import LARGEST_VALUE

Loss = Callable[[Array], tuple[float, Array]]
"""From A, (r, d), to the loss and its gradient with respect to M = A.T @ A, (d, d)."""
OnEvaluation = Callable[[], object]
"""Called before each evaluation of a loss; an exception that it raises ends the descent."""

# Eigenvalues below this share of the largest are rounding, not rank.
RANK_TOLERANCE = 1e-9
# Local coordinates are those of M + floor * (largest eigenvalue) * I. A floor of 1 lets eigenvalues
# reach zero exactly and keeps the metric sparse; a lower one then settles the scales along the others.
FLOORS = (1.0, 0.1, 0.01)
SETTLED_STEPS = 5  # the objective has settled when this many steps bring less than tol each
EXACT = 1e-3  # targets are standardised: below this share of their variance nothing is left to learn
BACKTRACKS = 8
SHRINK = 0.4
SUFFICIENT = 1e-4  # Armijo's constant
LEVEL_WITH_BEST = 1.02  # held-out squared errors within two per cent are level
PATIENCE = 6  # steps without a better held-out error before giving up


class Step(NamedTuple):
    """One point of a descent; the first is where it started."""

    components: Array  # A, (r, d)
    objective: float


class Descent(NamedTuple):
    """Where a descent ended: at its last step, or at the first about as good as the best on held-out rows."""

    components: Array
    objectives: list[float]
    held_out_errors: list[float]
    converged: bool

    @property
    def n_iter(self) -> int:
        """How many steps lead to ``components``."""
        return len(self.objectives) - 1


def descend(
    steps: Iterator[Step],
    max_iter: int,
    held_out_error: Callable[[Array], float] | None = None,
    report: Callable[[int, Step], None] | None = None,
) -> Descent:
    """Walk a solver's steps until it ends, ``max_iter`` is reached or held-out error stops falling."""
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
        converged = len(taken) <= max_iter  # the solver ended by itself
    # Of steps about as good the earliest: the metric overfits long before the held-out error shows it.
    best = int(np.argmax(np.array(errors) <= LEVEL_WITH_BEST * min(errors))) if errors else len(taken) - 1
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
    coordinates P^-1 M P^-1 with P^2 = M + floor * (largest eigenvalue) * I: there the metric is
    well scaled, and the trace is linear, so that the projection is still the exact proximal step.
    The step length starts from Barzilai and Borwein's and shrinks until the objective falls.
    """
    components = factor(start)
    value, gradient = loss(components)
    point = _Point(start, components, value + mu * float(np.trace(start)), gradient + mu * np.eye(len(start)))
    yield Step(point.components, point.objective)
    for floor in FLOORS:
        recent = [point.objective]
        previous: _Point | None = None
        length: float | None = None
        while True:
            following, length = _proximal_step(loss, mu, point, previous, floor, length)
            if following is None:
                break
            previous, point = point, following
            yield Step(point.components, point.objective)
            recent.append(point.objective)
            if _settled(recent, tol):
                break


class _Point(NamedTuple):
    metric: Array
    components: Array
    objective: float
    gradient: Array  # of the whole objective, penalty included


def _proximal_step(
    loss: Loss, mu: float, point: _Point, previous: _Point | None, floor: float, length: float | None
) -> tuple[_Point | None, float]:
    values, vectors = np.linalg.eigh(point.metric)
    values = np.maximum(values, 0.0)
    scales = np.sqrt(values + floor * values[-1])
    into, out = (vectors / scales).T, vectors * scales  # P^-1 and P, up to a rotation
    here = np.diag(values / scales**2)
    slope = out.T @ point.gradient @ out
    if previous is None or length is None:
        length = first_length(here, slope)
    else:
        moved = into @ (point.metric - previous.metric) @ into.T
        length = next_length(moved, out.T @ (point.gradient - previous.gradient) @ out, length)
    identity = np.eye(len(values))
    for _ in range(BACKTRACKS):
        shares, axes = np.linalg.eigh(here - length * slope)
        shares = np.maximum(shares, 0.0)
        if shares[-1] > 0.0:  # a metric of rank zero knows no neighbours
            kept = shares > RANK_TOLERANCE * shares[-1]
            components = ((out @ axes[:, kept]) * np.sqrt(shares[kept])).T
            metric = components.T @ components
            value, gradient = loss(components)
            objective = value + mu * float(np.trace(metric))
            travelled = float(np.sum(((axes * shares) @ axes.T - here) ** 2))
            if objective < point.objective - SUFFICIENT * travelled / length:
                return _Point(metric, components, objective, gradient + mu * identity), length
        length *= SHRINK
    return None, length


def paper_steps(loss: Loss, start: Array, mu: float, alpha: float, theta: float) -> Iterator[Step]:
    """Follow the paper's listing: M - alpha G, projected, until |L(M_t) - L(M_t-1)| <= theta.

    ``loss`` must give the gradient with the paper's own factor, 2 (equation 19).
    """
    metric, before = start, np.inf
    while True:
        components = factor(metric)
        value, gradient = loss(components)
        objective = value + mu * float(np.trace(metric))
        yield Step(components, objective)
        if abs(objective - before) <= theta:
            return
        before = objective
        values, vectors = np.linalg.eigh(metric - alpha * (gradient + mu * np.eye(len(metric))))
        metric = (vectors * np.maximum(values, 0.0)) @ vectors.T
        _check_length(alpha, metric)


def transformation_steps(loss: Loss, start: Array, mu: float, tol: float) -> Iterator[Step]:
    """Minimise loss + mu Tr(A.T A) over A (equation 9), dL/dA = 2 A dL/dM, with backtracking."""
    here, penalty = factor(start), mu * np.eye(len(start))
    value, gradient = loss(here)
    objective = value + mu * float(np.sum(here**2))
    slope = 2.0 * here @ (gradient + penalty)
    yield Step(here, objective)
    recent = [objective]
    length = first_length(here, slope)
    while not _settled(recent, tol):
        for _ in range(BACKTRACKS):
            there = here - length * slope
            value, gradient = loss(there)
            reached = value + mu * float(np.sum(there**2))
            if reached < objective - SUFFICIENT * length * float(np.sum(slope**2)):
                break
            length *= SHRINK
        else:
            return
        new_slope = 2.0 * there @ (gradient + penalty)
        length = next_length(there - here, new_slope - slope, length)
        here, slope, objective = there, new_slope, reached
        yield Step(here, objective)
        recent.append(objective)


def constant_transformation_steps(loss: Loss, start: Array, mu: float, alpha: float, theta: float) -> Iterator[Step]:
    """Follow equation 9 with a constant alpha until |L(A_t) - L(A_t-1)| <= theta."""
    here, before, identity = factor(start), np.inf, np.eye(len(start))
    while True:
        value, gradient = loss(here)
        objective = value + mu * float(np.sum(here**2))
        yield Step(here, objective)
        if abs(objective - before) <= theta:
            return
        before = objective
        here = here - alpha * 2.0 * here @ (gradient + mu * identity)
        _check_length(alpha, here)


def first_length(here: Array, slope: Array) -> float:
    """Length of a first step: one that moves a tenth of where we stand."""
    steepness = float(np.linalg.norm(slope))
    return 0.1 * float(np.linalg.norm(here)) / steepness if steepness > 0.0 else 1.0


def next_length(moved: Array, bent: Array, length: float) -> float:
    """Barzilai and Borwein's step length, at most ten times longer or shorter than the last."""
    curvature = float(np.sum(moved * bent))
    wanted = float(np.sum(moved**2)) / curvature if curvature > 0.0 else 2.0 * length
    return min(max(wanted, 0.1 * length), 10.0 * length)


def _check_length(alpha: float, reached: Array) -> None:
    if not np.abs(reached).max() <= LARGEST_VALUE:
        raise ValueError(f"alpha={alpha!r} is refused: steps of that length diverge; make it smaller")


def _settled(objectives: list[float], tol: float) -> bool:
    if len(objectives) <= SETTLED_STEPS:
        return False
    return objectives[-1 - SETTLED_STEPS] - objectives[-1] <= SETTLED_STEPS * tol * max(objectives[-1], EXACT)
