"""Sums of forecast errors, and the measures that are computed from them."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any, NamedTuple

from model.error_measures import GEH_SHARE


class ErrorSums(NamedTuple):
    """Sums over counts and their forecasts; a count without a forecast is in ``n_counts`` alone."""

    n_counts: int = 0
    n_used: int = 0
    counted: int = 0  # vehicles
    squared: float = 0.0
    absolute: float = 0.0
    signed: float = 0.0
    n_relative: int = 0  # counts of at least the floor
    relative: float = 0.0
    n_geh: int = 0  # slots with any flow, counted or expected
    geh: float = 0.0
    n_geh_passed: int = 0
    n_intervals: int = 0
    n_covered: int = 0
    # Squared errors of the profile and of last week's count, each beside those of the forecasts of the same slots.
    profile_squared: float = 0.0
    squared_beside_profile: float = 0.0
    last_week_squared: float = 0.0
    squared_beside_last_week: float = 0.0


def total(sums: Iterable[ErrorSums]) -> ErrorSums:
    """Add sums up: those of a day are the sums of its hours."""
    return ErrorSums(*(sum(numbers) for numbers in zip(*sums, strict=True)))


def measures(sums: ErrorSums, slots: int) -> dict[str, Any]:
    """Return the measures over so many slots; None where one is undefined."""
    geh_pass_share = _ratio(sums.n_geh_passed, sums.n_geh)
    mean_square = _ratio(sums.squared, sums.n_used)
    return {
        "rmse": None if mean_square is None else sqrt(mean_square),
        "mare": _ratio(sums.relative, sums.n_relative),
        "mae": _ratio(sums.absolute, sums.n_used),
        "bias": _ratio(sums.signed, sums.n_used),
        "wape": _ratio(sums.absolute, sums.counted),
        "geh_mean": _ratio(sums.geh, sums.n_geh),
        "geh_pass_share": geh_pass_share,
        "passes_geh": None if geh_pass_share is None else geh_pass_share >= GEH_SHARE,
        "coverage": _ratio(sums.n_covered, sums.n_intervals),
        "skill_profile": skill(sums.squared_beside_profile, sums.profile_squared),
        "n_used": sums.n_used,
        "n_below_floor": sums.n_used - sums.n_relative,
        "n_missing": slots - sums.n_counts,
        "slots_without_forecast": sums.n_counts - sums.n_used,
    }


def skill(squared: float, reference_squared: float) -> float | None:
    """Return 1 - RMSE / RMSE of a reference, from the sums of squared errors over the same slots."""
    ratio = _ratio(squared, reference_squared)
    return None if ratio is None else 1.0 - sqrt(ratio)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None
