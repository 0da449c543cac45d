"""Error measures of forecasts, each with the number of slots it is computed from.

Every measure takes actual and expected values of the same shape; NaN in either means missing.
A measure that is undefined is ``None``, never NaN or infinity.
"""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

GEH_LIMIT = 5.0  # a slot passes below it
GEH_SHARE = 0.85  # a link passes if at least this share of its slots passes


class Measure(NamedTuple):
    """A value, or None where it is undefined, and the numbers of slots that were used and left out."""

    value: float | None
    n_used: int
    n_below_floor: int = 0
    n_missing: int = 0


def rmse(actual: ArrayLike, expected: ArrayLike) -> Measure:
    """Return the root of the mean squared error."""
    pairs = _Pairs(actual, expected)
    return pairs.measure(_root_mean_square(pairs.errors) if pairs.n else None)


def mae(actual: ArrayLike, expected: ArrayLike) -> Measure:
    """Return the mean absolute error."""
    pairs = _Pairs(actual, expected)
    return pairs.measure(float(np.mean(np.abs(pairs.errors))) if pairs.n else None)


def bias(actual: ArrayLike, expected: ArrayLike) -> Measure:
    """Return the mean of expected - actual, which is positive when forecasts are too high."""
    pairs = _Pairs(actual, expected)
    return pairs.measure(float(np.mean(pairs.errors)) if pairs.n else None)


def wape(actual: ArrayLike, expected: ArrayLike) -> Measure:
    """Return the sum of absolute errors over the sum of actual values; undefined when that sum is not positive."""
    pairs = _Pairs(actual, expected)
    total = float(pairs.actual.sum())
    return pairs.measure(float(np.abs(pairs.errors).sum()) / total if total > 0.0 else None)


def mare(actual: ArrayLike, expected: ArrayLike, floor: float = 1.0) -> Measure:
    """Return the mean absolute relative error over actual values whose size is at least ``floor``.

    Relative errors are unbounded near zero, so use a floor for counts (default 1). For other targets
    a floor of 0 leaves out only actual values of exactly zero.
    """
    if not (isinstance(floor, Real) and isfinite(floor) and floor >= 0.0):
        raise ValueError(f"floor={floor!r} is refused; it must be a finite number of at least 0")
    pairs = _Pairs(actual, expected)
    sizes = np.abs(pairs.actual)
    used = (sizes >= floor) & (sizes > 0.0)
    n_used = int(used.sum())
    with np.errstate(over="ignore"):
        value = float(np.mean(np.abs(pairs.errors[used]) / sizes[used])) if n_used else None
    return Measure(_finite(value), n_used, pairs.n - n_used, pairs.n_missing)


def geh(actual: ArrayLike, expected: ArrayLike, slot_minutes: float = 15.0) -> Array:
    """Return the GEH of each slot, on hourly flows; NaN where both are zero or one is missing."""
    if not (isinstance(slot_minutes, Real) and isfinite(slot_minutes) and slot_minutes > 0.0):
        raise ValueError(f"slot_minutes={slot_minutes!r} is refused; it must be a finite number above 0")
    pairs = _Pairs(actual, expected)
    if min(pairs.actual.min(initial=0.0), pairs.expected.min(initial=0.0)) < 0.0:
        lowest = min(pairs.actual.min(), pairs.expected.min())
        raise ValueError(f"GEH is for flows of at least 0; got {lowest}")
    hourly = 60.0 / slot_minutes
    both = np.where(pairs.known, pairs.all_actual + pairs.all_expected, np.nan) * hourly
    squared = 2.0 * ((pairs.all_expected - pairs.all_actual) * hourly) ** 2
    out = np.full(both.shape, np.nan)
    np.divide(squared, both, out=out, where=both > 0.0)
    return np.asarray(np.sqrt(out))


def geh_pass_share(actual: ArrayLike, expected: ArrayLike, slot_minutes: float = 15.0) -> Measure:
    """Return the share of slots with a GEH below 5; slots without any flow count as below the floor.

    The measure is lenient at low flow, so report it together with others.
    """
    pairs = _Pairs(actual, expected)
    values = geh(actual, expected, slot_minutes)
    used = np.isfinite(values)
    n_used = int(used.sum())
    value = float(np.mean(values[used] < GEH_LIMIT)) if n_used else None
    return Measure(value, n_used, pairs.n - n_used, pairs.n_missing)


def passes_geh(share: Measure) -> bool | None:
    """Return whether a link passes, with GEH below 5 in at least 85 % of its slots."""
    return None if share.value is None else share.value >= GEH_SHARE


def coverage(actual: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Measure:
    """Return the share of actual values inside [lower, upper], bounds included."""
    above, below = _Pairs(actual, lower, "lower"), _Pairs(actual, upper, "upper")
    crossed = np.flatnonzero(above.all_expected > below.all_expected)
    if len(crossed):
        raise ValueError(f"lower is above upper at index {int(crossed[0])}")
    known = above.known & below.known
    n_used = int(known.sum())
    inside = (above.all_expected <= above.all_actual) & (below.all_actual <= below.all_expected)
    value = float(np.mean(inside[known])) if n_used else None
    return Measure(value, n_used, 0, known.size - n_used)


def skill(actual: ArrayLike, expected: ArrayLike, reference: ArrayLike) -> Measure:
    """Return 1 - RMSE / RMSE of a reference, on the slots where both are known; 0 means no better."""
    first, second = _Pairs(actual, expected), _Pairs(actual, reference, "reference")
    known = first.known & second.known
    n_used = int(known.sum())
    ours = first.all_expected[known] - first.all_actual[known]
    theirs = second.all_expected[known] - second.all_actual[known]
    reference_rmse = _root_mean_square(theirs) if n_used else 0.0
    value = 1.0 - _root_mean_square(ours) / reference_rmse if reference_rmse > 0.0 else None
    return Measure(_finite(value), n_used, 0, known.size - n_used)


class _Pairs:
    """Checked actual and expected values, and those of the slots where both are known."""

    def __init__(self, actual: ArrayLike, expected: ArrayLike, name: str = "expected") -> None:
        self.all_actual = _as_values("actual", actual)
        self.all_expected = _as_values(name, expected)
        if self.all_actual.shape != self.all_expected.shape:
            raise ValueError(
                f"actual has shape {self.all_actual.shape}, {name} {self.all_expected.shape}; they must agree"
            )
        self.known = ~(np.isnan(self.all_actual) | np.isnan(self.all_expected))
        self.actual = self.all_actual[self.known]
        self.expected = self.all_expected[self.known]
        self.errors = self.expected - self.actual
        self.n = len(self.actual)
        self.n_missing = self.known.size - self.n

    def measure(self, value: float | None) -> Measure:
        return Measure(_finite(value), self.n, 0, self.n_missing)


def _as_values(name: str, values: ArrayLike) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if np.isinf(array).any():
        raise ValueError(f"{name} holds an infinite value at index {int(np.flatnonzero(np.isinf(array))[0])}")
    return array


def _root_mean_square(errors: Array) -> float:
    """Return the root of the mean square, scaled so that squares of large values do not overflow."""
    size = float(np.abs(errors).max())
    return size * float(np.sqrt(np.mean((errors / size) ** 2))) if size > 0.0 else 0.0


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
