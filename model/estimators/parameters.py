"""Checks of estimator parameters and data; each error names the parameter, its value and the rule."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Squares of values within these bounds, and of their gradients, neither overflow nor underflow.
LARGEST_VALUE = 1e50
LARGEST_PARAMETER = 1e20


def whole_number(owner: object, name: str, *, at_least: int, at_most: int = 2**62) -> int:
    """Return a whole-number parameter of an estimator; raise ValueError if it is not one."""
    value: Any = getattr(owner, name)
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or int(value) < at_least:
        raise invalid_parameter(owner, name, value, f"a whole number of at least {at_least}")
    if int(value) > at_most:
        raise invalid_parameter(owner, name, value, f"a whole number of at most {at_most}")
    return int(value)


def number(owner: object, name: str, value: Any = None, *, positive: bool) -> float:
    """Return a parameter, or one of its values, as a float; raise ValueError unless it is finite and in range."""
    value = getattr(owner, name) if value is None else value
    least = 1.0 / LARGEST_PARAMETER if positive else 0.0
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not least <= value <= LARGEST_PARAMETER or not isfinite(value):
        rule = "a finite number above 0" if positive else "a finite number of at least 0"
        if real and value > 0:
            rule = f"a number between {least:g} and {LARGEST_PARAMETER:g}"
        raise invalid_parameter(owner, name, value, rule)
    return float(value)


def one_of(owner: object, name: str, choices: Collection[object]) -> Any:
    """Return a parameter; raise ValueError unless it is one of the choices."""
    value = getattr(owner, name)
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise invalid_parameter(owner, name, value, "one of " + ", ".join(map(repr, choices)))
    return value


def check_size(name: str, values: NDArray[np.float64]) -> None:
    """Raise ValueError for finite values whose squares may overflow."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"Input {name} holds a value of size {largest:g}; it must be at most {LARGEST_VALUE:g}; rescale the data"
        )


def invalid_parameter(owner: object, name: str, value: object, rule: str) -> ValueError:
    """Return the error for an invalid parameter."""
    return ValueError(f"{type(owner).__name__}: {name}={value!r} is refused; it must be {rule}")
