"""Metrics that each process counts for Prometheus; links and free text are never labels.

With several processes they are shared through files by prometheus-client's multiprocess mode. Metrics that are read
from the database are in ``app/server/database_metrics.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder of the files; the name is prometheus-client's
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ISSUE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LAG_BUCKETS = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400)
REFUSAL_CODES = (401, 403, 413, 429, 503)


disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()

# Counters are shown with _total at their end.
REQUESTS = Counter("flowcast_requests", "Requests answered", ("method", "route", "status"), registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "flowcast_request_duration_seconds",
    "Time to answer",
    ("method", "route", "status"),
    buckets=REQUEST_BUCKETS,
    registry=REGISTRY,
)
REFUSALS = Counter("flowcast_requests_refused", "Requests refused, by status code", ("code",), registry=REGISTRY)
SHED_REQUESTS = Counter(
    "flowcast_requests_shed", "Requests refused because too many were waiting", ("what",), registry=REGISTRY
)
UNRECORDED_CALLS = Counter(
    "flowcast_audit_unrecorded", "Refused admin calls that were left out of the audit", registry=REGISTRY
)
COUNTS_STORED = Counter("flowcast_counts_stored", "Counts stored, new and corrected", registry=REGISTRY)
INGEST_LAG_SECONDS = Histogram(
    "flowcast_ingest_lag_seconds",
    "From the end of a slot to the arrival of a count that moved its link forward",
    buckets=LAG_BUCKETS,
    registry=REGISTRY,
)
FORECASTS_ISSUED = Counter("flowcast_forecasts_issued", "Forecasts issued", ("method",), registry=REGISTRY)
FORECASTS_DEGRADED = Counter(
    "flowcast_forecasts_degraded", "Forecasts degraded, by reason", ("reason",), registry=REGISTRY
)
ISSUE_SECONDS = Histogram(
    "flowcast_forecast_issue_duration_seconds",
    "From the arrival of a batch of counts to its forecasts stored",
    buckets=ISSUE_BUCKETS,
    registry=REGISTRY,
)
FAILED_ISSUES = Counter(
    "flowcast_forecast_issues_failed", "Batches of counts that were stored but led to no forecast", registry=REGISTRY
)
LOADED_MODELS = Gauge(
    "flowcast_loaded_models",
    "Trained models in the memory of all processes",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)

# Created at the start, because rate() does not see the first step of a counter that was absent before.
for _code in REFUSAL_CODES:
    REFUSALS.labels(str(_code))
for _what in ("read", "write"):
    SHED_REQUESTS.labels(_what)


class _GivenMetrics(Collector):
    """Metrics that were computed elsewhere."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._families


def metrics_page(families: Iterable[Metric]) -> bytes:
    """Return all metrics in Prometheus' text format: those summed over all processes, and those given."""
    registry = REGISTRY
    if folder := os.environ.get(SHARED_FOLDER):
        _remove_dead_processes(Path(folder))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry) + generate_latest(_GivenMetrics(families))


def remove_process() -> None:
    """Remove this process, which ends, from gauges that are summed over running processes."""
    if folder := os.environ.get(SHARED_FOLDER):
        mark_process_dead(os.getpid(), folder)  # type: ignore[no-untyped-call]


def _remove_dead_processes(folder: Path) -> None:
    # A process that was killed has not called remove_process().
    for file in folder.glob("gauge_live*_*.db"):
        process = file.stem.rpartition("_")[2]
        if not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
            mark_process_dead(int(process), str(folder))  # type: ignore[no-untyped-call]
