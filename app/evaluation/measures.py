"""What is measured of a method's forecasts, on the training days and on the test days alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluation.protocol import SlotForecasts
from model.error_measures import bias, coverage, geh, geh_pass_share, mae, mare, rmse, skill, wape

Array = NDArray[np.float64]
MARE_FLOOR = 1.0


@dataclass(frozen=True)
class Measures:
    """Figures of one method on one part of the days; None where a figure is undefined."""

    rmse: float | None
    mare: float | None
    mae: float | None
    bias: float | None
    wape: float | None
    geh_pass_share: float | None
    mean_geh: float | None
    coverage: float | None
    interval_width: float | None
    skill_profile: float | None
    skill_last_week: float | None
    n_used: int  # slots scored: with a count and a forecast
    n_missing: int  # slots without one of them
    n_below_floor: int  # scored, but left out of MARE
    n_without_flow: int  # scored, but left out of GEH
    n_last_week: int  # scored slots that have a last week


@dataclass(frozen=True)
class Yardsticks:
    """Simpler forecasts of the same slots."""

    profile: Array
    last_week: Array


def measure(actual: Array, forecast: SlotForecasts, beside: Yardsticks, slot_minutes: float) -> Measures:
    """Measure forecasts of some slots against the counts that came."""
    whole, relative = rmse(actual, forecast.expected), mare(actual, forecast.expected, MARE_FLOOR)
    passed = geh_pass_share(actual, forecast.expected, slot_minutes)
    each = geh(actual, forecast.expected, slot_minutes)
    widths = np.where(np.isnan(actual), np.nan, forecast.upper - forecast.lower)
    last_week = skill(actual, forecast.expected, beside.last_week)
    return Measures(
        rmse=whole.value,
        mare=relative.value,
        mae=mae(actual, forecast.expected).value,
        bias=bias(actual, forecast.expected).value,
        wape=wape(actual, forecast.expected).value,
        geh_pass_share=passed.value,
        mean_geh=_mean(each),
        coverage=coverage(actual, forecast.lower, forecast.upper).value,
        interval_width=_mean(widths),
        skill_profile=skill(actual, forecast.expected, beside.profile).value,
        skill_last_week=last_week.value,
        n_used=whole.n_used,
        n_missing=whole.n_missing,
        n_below_floor=relative.n_below_floor,
        n_without_flow=passed.n_below_floor,
        n_last_week=last_week.n_used,
    )


def _mean(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
