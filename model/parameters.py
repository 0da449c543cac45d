"""Checks of estimator parameters: each refusal names the parameter, its value and the rule."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from numbers import Integral, Real
from typing import Any


def whole_number(owner: object, name: str, *, at_least: int) -> int:
    """Return a whole-number parameter of an estimator, or refuse it."""
    value: Any = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise _refusal(owner, name, value, f"a whole number of at least {at_least}")
    return int(value)


def number(owner: object, name: str, *, above: float | None = None, at_least: float | None = None) -> float:
    """Return a finite number above, or not below, a bound, or refuse it."""
    return check_number(owner, name, getattr(owner, name), above=above, at_least=at_least)


def check_number(
    owner: object, name: str, value: Any, *, above: float | None = None, at_least: float | None = None
) -> float:
    """Check a number that is, or is one of, a parameter's values."""
    rule = f"a finite number above {above}" if above is not None else f"a finite number of at least {at_least}"
    real = isinstance(value, Real) and not isinstance(value, bool) and isfinite(float(value))
    if not real or (above is not None and value <= above) or (at_least is not None and value < at_least):
        raise _refusal(owner, name, value, rule)
    return float(value)


def one_of(owner: object, name: str, choices: Collection[object]) -> Any:
    """Return a parameter that is one of a few values, or refuse it."""
    value = getattr(owner, name)
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise _refusal(owner, name, value, "one of " + ", ".join(map(repr, choices)))
    return value


def _refusal(owner: object, name: str, value: object, rule: str) -> ValueError:
    return ValueError(f"{type(owner).__name__}: {name}={value!r} is refused; it must be {rule}")
