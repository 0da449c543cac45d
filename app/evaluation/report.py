"""The report of an evaluation, in the layout of ``report.json`` (docs/evaluation.md)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FORMAT, VERSION = "flowcast-evaluation", 1
Values = list[float | None]


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
class Metric:
    """A learnt metric, on standardised counts."""

    lag_weights: list[float]  # the diagonal of M, lag by lag
    eigenvalues: list[float]  # largest first; zero beyond the rank


@dataclass(frozen=True)
class MethodForecasts:
    """A method's forecast of each test slot, rounded to a hundredth of a vehicle."""

    expected: Values
    lower: Values
    upper: Values


@dataclass(frozen=True)
class MethodResult:
    """One method on one link."""

    method: str
    protocol: str
    k: int | None
    bandwidth: float | None
    rank: int | None
    mu: float | None
    n_iter: int | None
    level_share: float | None
    seconds: float
    train: Measures
    test: Measures
    metric: Metric | None
    forecasts: MethodForecasts
    chosen: str | None = None  # what `best` chose on the held-out days


@dataclass(frozen=True)
class ScoredSlots:
    """The test slots of a link and their counts."""

    slot_starts: list[str]  # RFC 3339, UTC
    local_starts: list[str]  # the same on the link's clocks
    counts: Values


@dataclass(frozen=True)
class LinkResult:
    """One link: the days used, all methods, and what Figure 4 is drawn from."""

    link_id: str
    zone: str
    train_from: str  # local days, both ends included
    train_to: str
    test_from: str
    test_to: str
    mean_count: float
    d: int
    rank: int
    pca_d: int
    data_fingerprint: str
    figure: str
    methods: list[MethodResult]
    test_slots: ScoredSlots


@dataclass(frozen=True)
class NotEvaluated:
    """A link that could not be evaluated, and why."""

    link_id: str
    reason: str


@dataclass(frozen=True)
class MethodSummary:
    """One method over all links."""

    method: str
    test_rmse_to_kr: float | None
    geh_links_passed: int
    wins: dict[str, dict[str, int]]  # by part, then by measure: on how many links it is the best
    geometric_mean: dict[str, dict[str, float | None]]
    mean: dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Summary:
    """All links at a glance."""

    n_links: int
    n_not_evaluated: int
    n_scored: int
    methods: list[MethodSummary]
    ranking: list[str]  # methods by the geometric mean of test RMSE, the smallest first


@dataclass(frozen=True)
class Options:
    """The options of an evaluation, and what follows from them."""

    train_days: int
    test_days: int
    first_day: str | None
    links: list[str] | None
    sample: int | None
    seed: int | None
    lags: list[int]
    neighbors: int
    slot_minutes: int
    held_out_days: int
    held_out_days_reduced: bool
    level: float
    mare_floor: float
    geh_limit: float
    geh_share: float


@dataclass(frozen=True)
class Report:
    """A whole evaluation."""

    format: str
    version: int
    flowcast_version: str
    files: list[str]
    data_fingerprint: str
    protocol: str
    options: Options
    notes: list[str]
    summary: Summary
    links: list[LinkResult]
    not_evaluated: list[NotEvaluated]
    seconds: float

    def to_text(self) -> str:
        """Return the text of report.json, in which NaN and infinity are not allowed."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
