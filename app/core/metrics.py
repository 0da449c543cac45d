"""Prometheus: what each process counts; right with several of them, and never a link or free text as a label.

What the database knows is not counted here but asked for when Prometheus comes: see ``figures.py``.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where processes share their figures; prometheus-client's own name
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ISSUE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LAG_SECONDS = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400)
REFUSALS = (401, 403, 413, 429, 503)
# Why a forecast is not what the link's active model would have said; what is said to callers has numbers in it.
DEGRADED = ("no_model", "damaged_model", "gaps", "no_profile", "failed", "stale", "other")
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
OTHER = "other"

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()


class BatchHistogram(Histogram):
    """A histogram that takes many values at once: where processes share their figures, each step costs."""

    def observe_all(self, values: Sequence[float]) -> None:
        """Observe values, with one step for each bucket that some of them fall into."""
        for place, n in Tally(bisect_left(self._upper_bounds, value) for value in values).items():
            self._buckets[place].inc(n)
        self._sum.inc(sum(values))


_requests = Counter(
    "flowcast_requests", "Requests answered", ("method", "route", "status"), registry=REGISTRY
)  # shown with _total at its end
_durations = BatchHistogram(
    "flowcast_request_duration_seconds",
    "Time to answer",
    ("method", "route", "status"),
    buckets=SECONDS,
    registry=REGISTRY,
)
_refusals = Counter("flowcast_requests_refused", "Requests refused, by status code", ("code",), registry=REGISTRY)
_unrecorded = Counter(
    "flowcast_audit_unrecorded", "Refused admin calls that were left out of the audit", registry=REGISTRY
)
_counts = Counter("flowcast_counts_stored", "Counts stored, new and corrected", registry=REGISTRY)
_lags = BatchHistogram(
    "flowcast_ingest_lag_seconds",
    "From the end of a slot to the arrival of a count that moved its link forward",
    buckets=LAG_SECONDS,
    registry=REGISTRY,
)
_forecasts = Counter("flowcast_forecasts_issued", "Forecasts issued", ("method",), registry=REGISTRY)
_degraded = Counter("flowcast_forecasts_degraded", "Forecasts degraded, by reason", ("reason",), registry=REGISTRY)
_issues = Histogram(
    "flowcast_forecast_issue_duration_seconds",
    "From the arrival of a batch of counts to its forecasts stored",
    buckets=ISSUE_SECONDS,
    registry=REGISTRY,
)
_failed_issues = Counter(
    "flowcast_forecast_issues_failed", "Batches of counts that were stored but led to no forecast", registry=REGISTRY
)
_models = Gauge(
    "flowcast_loaded_models",
    "Trained models in the memory of all processes",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)


class _Answers(NamedTuple):
    """Answers of one kind: where they are counted, and how long those took that are not counted yet."""

    answers: Counter
    durations: BatchHistogram
    refusals: Counter | None
    waiting: list[float]


# Finding a labelled child costs more than counting with it. There are as many as routes, methods and status codes.
_answers: dict[tuple[str, str, int], _Answers] = {}
# From the start on, for a rate cannot see the first step of a counter that was not there before.
_refused = {code: _refusals.labels(str(code)) for code in REFUSALS}
_degraded_by = {reason: _degraded.labels(reason) for reason in DEGRADED}


def request_answered(method: str, route: str, status: int, seconds: float) -> None:
    """Take note of an answer and the time it took, which is counted by ``count_answers``."""
    kind = method if method in METHODS else OTHER, route, status
    alike = _answers.get(kind)
    if alike is None:
        labels = *kind[:2], f"{status // 100}xx"
        alike = _Answers(_requests.labels(*labels), _durations.labels(*labels), _refused.get(status), [])
        _answers[kind] = alike
    alike.waiting.append(seconds)


def count_answers() -> None:
    """Count the answers that were taken note of."""
    for answers, durations, refusals, waiting in list(_answers.values()):
        if seconds := waiting[:]:
            del waiting[: len(seconds)]
            answers.inc(len(seconds))
            durations.observe_all(seconds)
            if refusals is not None:
                refusals.inc(len(seconds))


def call_unrecorded() -> None:
    """Count a refused admin call that was left out of the audit."""
    _unrecorded.inc()


def counts_stored(n: int) -> None:
    """Count counts that were stored."""
    _counts.inc(n)


def counts_arrived(lags: Iterable[float]) -> None:
    """Note how long after the ends of their slots counts came, a lag for each link that moved forward."""
    _lags.observe_all(list(lags))


def forecasts_issued(method: str, n: int) -> None:
    """Count forecasts that were issued, by the method that made them."""
    _forecasts.labels(method).inc(n)


def forecasts_degraded(reason: str, n: int) -> None:
    """Count forecasts that were degraded, by one of the reasons in ``DEGRADED``."""
    _degraded_by[reason].inc(n)


def forecasts_stored(seconds: float) -> None:
    """Note how long after a batch of counts had arrived its forecasts were stored."""
    _issues.observe(seconds)


def forecasts_failed() -> None:
    """Count a batch of counts that led to no forecast although it should have."""
    _failed_issues.inc()


def models_loaded(n: int) -> None:
    """Say how many models this process holds."""
    _models.set(n)


class _Given(Collector):
    """Figures that were found elsewhere."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """Give them."""
        yield from self._families


def page(families: Iterable[Metric]) -> bytes:
    """Write all figures, those counted over all processes and those given, as Prometheus reads them."""
    count_answers()
    registry = REGISTRY
    if folder := os.environ.get(SHARED_FOLDER):
        _forget_dead(Path(folder))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    given = CollectorRegistry()
    given.register(_Given(families))
    return generate_latest(registry) + generate_latest(given)


def process_ends() -> None:
    """Take this process out of what is summed over the living."""
    count_answers()
    if folder := os.environ.get(SHARED_FOLDER):
        mark_process_dead(os.getpid(), folder)  # type: ignore[no-untyped-call]


def _forget_dead(folder: Path) -> None:
    # A process that was killed could not say goodbye.
    for file in folder.glob("gauge_live*_*.db"):
        found = re.search(r"_(\d+)\.db$", file.name)
        if found and not Path(f"/proc/{found[1]}").exists() and Path("/proc/self").exists():
            mark_process_dead(int(found[1]), str(folder))  # type: ignore[no-untyped-call]
