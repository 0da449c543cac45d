"""Measures of a method's forecasts on one link, and their summary over all links."""

from __future__ import annotations

from math import exp, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.evaluation.plan import COMPARED, METHODS
from app.evaluation.protocol import SlotForecasts
from app.evaluation.report import LinkResult, Measures, MethodSummary, NotEvaluated, Summary
from model.error_measures import Measure, bias, coverage, geh, geh_pass_share, mae, mare, passes_geh, rmse, skill, wape

Array = NDArray[np.float64]
Part = Literal["train", "test"]

MARE_FLOOR = 1.0
PARTS: tuple[Part, ...] = ("train", "test")
# Which figure of a row is the best, by measure; other measures have no best.
SMALLEST = ("rmse", "mare", "mae", "wape", "mean_geh")
LARGEST = ("geh_pass_share", "skill_profile", "skill_last_week")
NEAREST_LEVEL = ("coverage",)
NEAREST_ZERO = ("bias",)
JUDGED = (*SMALLEST, *LARGEST, *NEAREST_LEVEL, *NEAREST_ZERO)
AVERAGED = (*JUDGED, "interval_width")
GEOMETRIC = ("rmse", "mare")


def measure(actual: Array, forecast: SlotForecasts, profile: Array, last_week: Array, slot_minutes: float) -> Measures:
    """Measure forecasts of some slots against the realised counts, and beside two simpler forecasts."""
    expected = forecast.expected
    errors, relative = rmse(actual, expected), mare(actual, expected, MARE_FLOOR)
    passed = geh_pass_share(actual, expected, slot_minutes)
    against_last_week = skill(actual, expected, last_week)
    return Measures(
        rmse=errors.value,
        mare=relative.value,
        mae=mae(actual, expected).value,
        bias=bias(actual, expected).value,
        wape=wape(actual, expected).value,
        geh_pass_share=passed.value,
        mean_geh=_finite_mean(geh(actual, expected, slot_minutes)),
        coverage=coverage(actual, forecast.lower, forecast.upper).value,
        interval_width=_finite_mean(np.where(np.isnan(actual), np.nan, forecast.upper - forecast.lower)),
        skill_profile=skill(actual, expected, profile).value,
        skill_last_week=against_last_week.value,
        n_used=errors.n_used,
        n_missing=errors.n_missing,
        n_below_floor=relative.n_below_floor,
        n_without_flow=passed.n_below_floor,
        n_last_week=against_last_week.n_used,
    )


def _finite_mean(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def figures(link: LinkResult, part: Part, name: str) -> list[float | None]:
    """Return one measure of a link, a value a method."""
    return [getattr(getattr(method, part), name) for method in link.methods]


def best_of(values: list[float | None], name: str, level: float) -> list[bool]:
    """Mark the best of a row, or those that are equally good; none where nothing is comparable."""
    if name not in JUDGED or all(value is None for value in values):
        return [False] * len(values)
    distance = {
        **dict.fromkeys(SMALLEST, lambda value: value),
        **dict.fromkeys(LARGEST, lambda value: -value),
        **dict.fromkeys(NEAREST_LEVEL, lambda value: abs(value - level)),
        **dict.fromkeys(NEAREST_ZERO, abs),
    }[name]
    distances = [None if value is None else distance(value) for value in values]
    least = min(value for value in distances if value is not None)
    return [value == least for value in distances]


def summarise(links: list[LinkResult], left_out: list[NotEvaluated], level: float) -> Summary:
    """Summarise an evaluation over its links."""
    geometric = {part: {name: _geometric_means(links, part, name) for name in GEOMETRIC} for part in PARTS}
    errors = geometric["test"]["rmse"]
    plain = errors[METHODS.index("KR")]
    methods = []
    for at, method in enumerate(COMPARED):
        ours = errors[at]
        shares = [Measure(link.methods[at].test.geh_pass_share, 0) for link in links]
        methods.append(
            MethodSummary(
                method=method,
                test_rmse_to_kr=None if ours is None or not plain else ours / plain,
                geh_links_passed=sum(passes_geh(share) is True for share in shares),
                wins={
                    part: {
                        name: sum(best_of(figures(link, part, name), name, level)[at] for link in links)
                        for name in JUDGED
                    }
                    for part in PARTS
                },
                geometric_mean={part: {name: geometric[part][name][at] for name in GEOMETRIC} for part in PARTS},
                mean={
                    part: {name: _mean([figures(link, part, name)[at] for link in links]) for name in AVERAGED}
                    for part in PARTS
                },
            )
        )
    return Summary(
        n_links=len(links),
        n_not_evaluated=len(left_out),
        n_scored=sum(link.methods[METHODS.index("KR_SML")].test.n_used for link in links),
        methods=methods,
        ranking=[
            name
            for _, name in sorted((mean, name) for mean, name in zip(errors, COMPARED, strict=True) if mean is not None)
        ],
    )


def _geometric_means(links: list[LinkResult], part: Part, name: str) -> list[float | None]:
    """Return geometric means over the links where every method's figure is above zero, a value a method.

    A method that has a figure on no link is left out, and the others are compared without it.
    """
    rows = [figures(link, part, name) for link in links]
    present = [any(row[at] for row in rows) for at in range(len(COMPARED))]
    whole = [[value or 1.0 for value in row] for row in rows if all(v for v, p in zip(row, present, strict=True) if p)]
    if not whole:
        return [None] * len(COMPARED)
    means = [exp(sum(log(row[at]) for row in whole) / len(whole)) for at in range(len(COMPARED))]
    return [mean if known else None for mean, known in zip(means, present, strict=True)]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
