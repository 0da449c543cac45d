"""Checks of estimator parameters and data: each refusal names the thing, its value and the rule."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Squares, and squares of gradients, of anything within these bounds neither overflow nor vanish.
LARGEST_VALUE = 1e50
LARGEST_PARAMETER = 1e20


def whole_number(owner: object, name: str, *, at_least: int, at_most: int = 2**62) -> int:
    """Return a whole-number parameter of an estimator, or refuse it."""
    value: Any = getattr(owner, name)
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or int(value) < at_least:
        raise refusal(owner, name, value, f"a whole number of at least {at_least}")
    if int(value) > at_most:
        raise refusal(owner, name, value, f"a whole number of at most {at_most}")
    return int(value)


def number(owner: object, name: str, value: Any = None, *, positive: bool) -> float:
    """Return a parameter (or one of its values) that is a finite number, positive or not negative."""
    value = getattr(owner, name) if value is None else value
    least = 1.0 / LARGEST_PARAMETER if positive else 0.0
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not least <= value <= LARGEST_PARAMETER or not isfinite(value):
        rule = "a finite number above 0" if positive else "a finite number of at least 0"
        if real and value > 0:
            rule = f"a number between {least:g} and {LARGEST_PARAMETER:g}"
        raise refusal(owner, name, value, rule)
    return float(value)


def one_of(owner: object, name: str, choices: Collection[object]) -> Any:
    """Return a parameter that is one of a few values, or refuse it."""
    value = getattr(owner, name)
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise refusal(owner, name, value, "one of " + ", ".join(map(repr, choices)))
    return value


def check_size(name: str, values: NDArray[np.float64]) -> None:
    """Refuse finite values whose squares would not be."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"Input {name} holds a value of size {largest:g}; at most {LARGEST_VALUE:g} can be computed with"
        )


def refusal(owner: object, name: str, value: object, rule: str) -> ValueError:
    """Make the error that refuses a parameter."""
    return ValueError(f"{type(owner).__name__}: {name}={value!r} is refused; it must be {rule}")
