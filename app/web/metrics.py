"""Prometheus: requests, counts stored, forecasts issued; right with several processes, and never a link as a label."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where processes share their figures; prometheus-client's own name
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
OTHER = "other"

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
_requests = Counter(
    "flowcast_requests", "Requests answered", ("method", "route", "status"), registry=REGISTRY
)  # shown with _total at its end
_durations = Histogram(
    "flowcast_request_duration_seconds", "Time to answer", ("method", "route"), buckets=SECONDS, registry=REGISTRY
)
_counts = Counter("flowcast_counts_stored", "Counts stored, new and corrected", registry=REGISTRY)
_forecasts = Counter("flowcast_forecasts_issued", "Forecasts issued", ("method",), registry=REGISTRY)
_models = Gauge(
    "flowcast_loaded_models",
    "Trained models in the memory of all processes",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)


class _Children(NamedTuple):
    answers: Counter
    duration: Histogram


# Finding a labelled child costs more than counting with it. There are as many as routes, methods and status classes.
_children: dict[tuple[str, str, int], _Children] = {}


def request_answered(method: str, route: str, status: int, seconds: float) -> None:
    """Count an answer and the time it took."""
    children = _children.get((method, route, status // 100))
    if children is None:
        name = method if method in METHODS else OTHER
        answers = _requests.labels(name, route, f"{status // 100}xx")
        children = _Children(answers, _durations.labels(name, route))
        if name is not OTHER:
            _children[method, route, status // 100] = children
    children.answers.inc()
    children.duration.observe(seconds)


def counts_stored(n: int) -> None:
    """Count counts that were stored."""
    _counts.inc(n)


def forecasts_issued(method: str, n: int) -> None:
    """Count forecasts that were issued, by the method that made them."""
    _forecasts.labels(method).inc(n)


def models_loaded(n: int) -> None:
    """Say how many models this process holds."""
    _models.set(n)


class _Now(Collector):
    """Figures that are the same whichever process is asked."""

    def __init__(self, feed_age: float | None, ready: bool) -> None:
        self._feed_age, self._ready = feed_age, ready

    def collect(self) -> Iterator[Metric]:
        """Give them."""
        yield GaugeMetricFamily("flowcast_ready", "1 when /readyz says so", value=float(self._ready))
        if self._feed_age is not None:
            yield GaugeMetricFamily("flowcast_feed_age_seconds", "Time since the newest slot", value=self._feed_age)


def page(feed_age: float | None, ready: bool) -> bytes:
    """Write all figures, over all processes, as Prometheus reads them."""
    registry = REGISTRY
    if folder := os.environ.get(SHARED_FOLDER):
        _forget_dead(Path(folder))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    now = CollectorRegistry()
    now.register(_Now(feed_age, ready))
    return generate_latest(registry) + generate_latest(now)


def process_ends() -> None:
    """Take this process out of what is summed over the living."""
    if folder := os.environ.get(SHARED_FOLDER):
        mark_process_dead(os.getpid(), folder)  # type: ignore[no-untyped-call]


def _forget_dead(folder: Path) -> None:
    # A process that was killed could not say goodbye.
    for file in folder.glob("gauge_live*_*.db"):
        found = re.search(r"_(\d+)\.db$", file.name)
        if found and not Path(f"/proc/{found[1]}").exists() and Path("/proc/self").exists():
            mark_process_dead(int(found[1]), str(folder))  # type: ignore[no-untyped-call]
