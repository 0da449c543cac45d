"""Metrics that each process counts for Prometheus; links and free text are never labels.

With several processes they are shared through files by prometheus-client's multiprocess mode. Metrics that are read
from the database are in ``app/server/database_metrics.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder of the files; the name is prometheus-client's
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ISSUE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LAG_SECONDS = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400)
REFUSALS = (401, 403, 413, 429, 503)
# Why a forecast does not come from the link's active model; the texts that callers read have numbers in them.
DEGRADED = ("no_model", "damaged_model", "gaps", "no_profile", "failed", "stale", "other")
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
OTHER = "other"

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()

_requests = Counter(
    "flowcast_requests", "Requests answered", ("method", "route", "status"), registry=REGISTRY
)  # shown with _total at its end
_durations = Histogram(
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
_lags = Histogram(
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

# Created at the start, because rate() does not see the first step of a counter that was absent before.
for _code in REFUSALS:
    _refusals.labels(str(_code))
for _reason in DEGRADED:
    _degraded.labels(_reason)


def request_answered(method: str, route: str, status: int, seconds: float) -> None:
    """Count an answer and the time it took."""
    labels = method if method in METHODS else OTHER, route, f"{status // 100}xx"
    _requests.labels(*labels).inc()
    _durations.labels(*labels).observe(seconds)
    if status in REFUSALS:
        _refusals.labels(str(status)).inc()


def call_unrecorded() -> None:
    """Count a refused admin call that was left out of the audit."""
    _unrecorded.inc()


def counts_stored(n: int) -> None:
    """Count counts that were stored."""
    _counts.inc(n)


def counts_arrived(lags: Iterable[float]) -> None:
    """Observe the time from the end of a slot to the arrival of its count, for each link that moved forward."""
    for lag in lags:
        _lags.observe(lag)


def forecasts_issued(method: str, n: int) -> None:
    """Count forecasts that were issued, by the method that made them."""
    _forecasts.labels(method).inc(n)


def forecasts_degraded(reason: str, n: int) -> None:
    """Count forecasts that were degraded, by one of the reasons in ``DEGRADED``."""
    _degraded.labels(reason).inc(n)


def forecasts_stored(seconds: float) -> None:
    """Observe the time from the arrival of a batch of counts to its forecasts stored."""
    _issues.observe(seconds)


def forecasts_failed() -> None:
    """Count a batch of counts that led to no forecast although it should have."""
    _failed_issues.inc()


def models_loaded(n: int) -> None:
    """Set the number of models in the memory of this process."""
    _models.set(n)


class _GivenMetrics(Collector):
    """A collector of metrics that were computed elsewhere."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._families


def page(families: Iterable[Metric]) -> bytes:
    """Return all metrics in Prometheus' text format: those summed over all processes, and those given."""
    registry = REGISTRY
    if folder := os.environ.get(SHARED_FOLDER):
        _forget_dead(Path(folder))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    given = CollectorRegistry()
    given.register(_GivenMetrics(families))
    return generate_latest(registry) + generate_latest(given)


def process_ends() -> None:
    """Remove this process from gauges that are summed over running processes."""
    if folder := os.environ.get(SHARED_FOLDER):
        mark_process_dead(os.getpid(), folder)  # type: ignore[no-untyped-call]


def _forget_dead(folder: Path) -> None:
    # A process that was killed has not called process_ends().
    for file in folder.glob("gauge_live*_*.db"):
        found = re.search(r"_(\d+)\.db$", file.name)
        if found and not Path(f"/proc/{found[1]}").exists() and Path("/proc/self").exists():
            mark_process_dead(int(found[1]), str(folder))  # type: ignore[no-untyped-call]
