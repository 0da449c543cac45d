"""All links at a glance: who is best how often, and means over links."""

from __future__ import annotations

from math import exp, log
from typing import Literal

from app.evaluation.plan import COMPARED, METHODS
from app.evaluation.report import LinkResult, MethodSummary, NotEvaluated, Summary
from model.error_measures import Measure, passes_geh

Part = Literal["train", "test"]
PARTS: tuple[Part, ...] = ("train", "test")
# What makes a figure the best of its row; a measure that is not here has no best.
SMALLEST = ("rmse", "mare", "mae", "wape", "mean_geh")
LARGEST = ("geh_pass_share", "skill_profile", "skill_last_week")
NEAREST_LEVEL = ("coverage",)
NEAREST_ZERO = ("bias",)
JUDGED = (*SMALLEST, *LARGEST, *NEAREST_LEVEL, *NEAREST_ZERO)
AVERAGED = (*JUDGED, "interval_width")
GEOMETRIC = ("rmse", "mare")
KR_AT, KR_SML_AT = METHODS.index("KR"), METHODS.index("KR_SML")


def figures(link: LinkResult, part: Part, measure: str) -> list[float | None]:
    """Return one measure of a link, a value a method."""
    return [getattr(getattr(method, part), measure) for method in link.methods]


def best_of(values: list[float | None], measure: str, level: float) -> list[bool]:
    """Mark the best of a row, or those that are equally good; none where nothing is comparable."""
    if measure not in JUDGED or all(value is None for value in values):
        return [False] * len(values)
    distance = {
        **dict.fromkeys(SMALLEST, lambda value: value),
        **dict.fromkeys(LARGEST, lambda value: -value),
        **dict.fromkeys(NEAREST_LEVEL, lambda value: abs(value - level)),
        **dict.fromkeys(NEAREST_ZERO, abs),
    }[measure]
    distances = [None if value is None else distance(value) for value in values]
    least = min(value for value in distances if value is not None)
    return [value == least for value in distances]


def summarise(links: list[LinkResult], left_out: list[NotEvaluated], level: float) -> Summary:
    """Summarise an evaluation over its links."""
    return Summary(
        n_links=len(links),
        n_not_evaluated=len(left_out),
        n_scored=sum(link.methods[KR_SML_AT].test.n_used for link in links),
        methods=[_of_method(at, method, links, level) for at, method in enumerate(COMPARED)],
        ranking=_ranking(links),
    )


def _ranking(links: list[LinkResult]) -> list[str]:
    """Return the methods from best to worst; those without a figure are left out."""
    means = zip(_geometric(links, "test", "rmse"), COMPARED, strict=True)
    return [method for _, method in sorted((mean, method) for mean, method in means if mean is not None)]


def _of_method(at: int, method: str, links: list[LinkResult], level: float) -> MethodSummary:
    ours, plain = _geometric(links, "test", "rmse")[at], _geometric(links, "test", "rmse")[KR_AT]
    shares = [Measure(link.methods[at].test.geh_pass_share, 0) for link in links]
    return MethodSummary(
        method=method,
        test_rmse_to_kr=None if ours is None or not plain else ours / plain,
        geh_links_passed=sum(passes_geh(share) is True for share in shares),
        wins={
            part: {m: sum(best_of(figures(link, part, m), m, level)[at] for link in links) for m in JUDGED}
            for part in PARTS
        },
        geometric_mean={part: {m: _geometric(links, part, m)[at] for m in GEOMETRIC} for part in PARTS},
        mean={part: {m: _mean([figures(link, part, m)[at] for link in links]) for m in AVERAGED} for part in PARTS},
    )


def _geometric(links: list[LinkResult], part: Part, measure: str) -> list[float | None]:
    """Geometric means over the links where every method's figure is above zero, a value a method.

    A method that has a figure on no link is left out, and the others are compared without it.
    """
    rows = [figures(link, part, measure) for link in links]
    present = [any(row[at] for row in rows) for at in range(len(COMPARED))]
    whole = [[value or 1.0 for value in row] for row in rows if all(v for v, p in zip(row, present, strict=True) if p)]
    if not whole:
        return [None] * len(COMPARED)
    means = [exp(sum(log(row[at]) for row in whole) / len(whole)) for at in range(len(COMPARED))]
    return [mean if there else None for mean, there in zip(means, present, strict=True)]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
