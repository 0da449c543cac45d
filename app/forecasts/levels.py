"""Intervals of the levels that a caller wants, scaled from those of an issued forecast.

Those of an aggregate are scaled by the factors that follow its errors at each level, others as if errors were normal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.errors import Invalid, worded
from app.forecasts.issued_forecast import DECIMALS, HORIZONS, Array, Document, IssuedForecast
from model.aggregation.intervals import LEVELS as FOLLOWED
from model.aggregation.intervals import IntervalFactors, normal_factor

MOST_LEVELS = 5
_LEVEL = r"0\.([1-9][0-9]{0,3}|0[1-9][0-9]{0,2}|00[1-9][0-9]?|000[1-9])"
LEVELS = worded(
    rf"^{_LEVEL}(,{_LEVEL}){{0,{MOST_LEVELS - 1}}}$",
    f"must be 1 to {MOST_LEVELS} levels between 0 and 1, such as 0.5,0.95, each with at most four decimals",
)
LEVEL_ONCE_RULE = "must name each level once"


def parse_levels(text: str | None) -> tuple[float, ...]:
    """Return the levels that a query lists, which match ``LEVELS``; none where it has no such parameter."""
    levels = tuple(float(level) for level in text.split(",")) if text else ()
    if len(set(levels)) < len(levels):
        raise Invalid.field("level", text, LEVEL_ONCE_RULE)
    return levels


def offset_ratio(level: float, of_level: float) -> float:
    """Return how much further the ends of an interval lie from the expected count than those of another level."""
    return 1.0 if level == of_level else float(normal_factor(level) / normal_factor(of_level))


def at_level(issued: IssuedForecast, level: float) -> IssuedForecast:
    """Return a forecast with intervals of another level; null ends stay null."""
    if level == issued.level:
        return issued
    below, above = _offset_ratios(issued, level)
    expected = np.array(issued.expected)
    lower, upper = np.array(issued.lower, dtype=np.float64), np.array(issued.upper, dtype=np.float64)  # NaN for None
    return issued._replace(
        level=level,
        lower=_rounded_or_none(np.maximum(expected - below * (expected - lower), 0.0)),
        upper=_rounded_or_none(expected + above * (upper - expected)),
    )


def _offset_ratios(issued: IssuedForecast, level: float) -> tuple[Array, Array]:
    """Return the ratios of both ends for each slot; beyond the issued horizons those of the last one."""
    ratio = np.full((2, len(issued.expected)), offset_ratio(level, issued.level))
    if issued.experts is not None and issued.experts.factors is not None:
        factors = IntervalFactors(np.frombuffer(issued.experts.factors).reshape(HORIZONS, 2, len(FOLLOWED)))
        of_horizon = (factors.at(level) / factors.at(issued.level)).T  # (2, n_horizons)
        ratio = of_horizon[:, np.minimum(np.arange(len(issued.expected)), HORIZONS - 1)]
    return ratio[0], ratio[1]


def add_intervals(items: Sequence[Document], forecasts: Sequence[IssuedForecast]) -> None:
    """Add to the items of a forecast its intervals of several levels."""
    for h, item in enumerate(items):
        item["intervals"] = [{"level": one.level, "lower": one.lower[h], "upper": one.upper[h]} for one in forecasts]


def level_columns(levels: Sequence[float]) -> list[str]:
    """Return the columns that several levels add to a CSV: a pair for each."""
    return [name for level in levels for name in _columns_of(level)] if len(levels) > 1 else []


def as_row(item: Document) -> Document:
    """Return an item of a forecast as a row of CSV, with a pair of columns for each of several levels."""
    ends: Document = {}
    for interval in item.get("intervals", ()):
        lower, upper = _columns_of(interval["level"])
        ends |= {lower: interval["lower"], upper: interval["upper"]}
    return item | ends


def _columns_of(level: float) -> tuple[str, str]:
    return f"lower_{level:g}", f"upper_{level:g}"


def _rounded_or_none(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else round(value, DECIMALS) for value in values.tolist()]
