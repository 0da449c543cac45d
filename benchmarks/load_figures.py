"""Figures of ``benchmarks.load``, computed from the clients' responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.load_clients import NOT_SENT, RETRIED, ClientResults, Response
from benchmarks.load_traffic import FORECAST, KINDS

RECOVERED_RATIO = 2.0  # times the normal median, up to which a second counts as normal


@dataclass(frozen=True)
class Figures:
    """One kind of request: numbers of responses, and response times in milliseconds."""

    kind: str
    answered: int
    refused: int
    errors: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class MixedLoad:
    """The mixed load on some number of workers."""

    workers: int
    seconds: float
    kinds: list[Figures]
    a_second: float
    cpu_seconds: float
    a_cpu_second: float
    cores: float  # that the service used
    forecast_p99s: list[float]  # ms, of GET …/forecast in each round
    weights: list[tuple[float, float]]  # seconds of mixed load, and megabytes
    clients_busy: float  # cores
    clients_lag_p99: float  # ms

    @property
    def forecast(self) -> Figures:
        """The figures of GET …/forecast."""
        return next(one for one in self.kinds if one.kind == FORECAST)


@dataclass(frozen=True)
class Overload:
    """The load of twice the capacity, and the recovery."""

    capacity: float  # requests a second
    offered: float
    answered: float
    refused_share: float
    given_up_share: float  # not sent, because no connection became free in time
    without_retry_after: int
    refused_p99: float  # ms
    kinds: list[Figures]
    recovered_after: float | None  # seconds until forecasts are as fast as before and nothing is refused
    clients_busy: float


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of values do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def figures_of(responses: Sequence[Response]) -> list[Figures]:
    """Return the figures of each kind of request."""
    found = []
    for kind in KINDS:
        mine = [response for response in responses if response.kind == kind and response.status != NOT_SENT]
        good = [1000 * response.latency for response in mine if 0 < response.status < 400]
        refused = sum(response.status in RETRIED for response in mine)
        found.append(
            Figures(
                kind,
                len(good),
                refused,
                len(mine) - len(good) - refused,
                quantile(good, 0.5),
                quantile(good, 0.95),
                quantile(good, 0.99),
            )
        )
    return found


def mixed_figures(workers: int, rounds: Sequence[ClientResults], weights: list[tuple[float, float]]) -> MixedLoad:
    """Return the figures of all rounds of the mixed load."""
    kinds = figures_of([response for one in rounds for response in one.responses])
    answered, cpu_seconds = sum(one.answered for one in kinds), sum(one.service_cpu_seconds for one in rounds)
    seconds = sum(one.seconds for one in rounds)
    return MixedLoad(
        workers,
        weights[-1][0],
        kinds,
        answered / seconds,
        cpu_seconds,
        answered / cpu_seconds,
        cpu_seconds / seconds,
        [one.p99 for results in rounds for one in figures_of(results.responses) if one.kind == FORECAST],
        weights,
        sum(one.cpu_seconds for one in rounds) / seconds,
        1000 * quantile([lag for one in rounds for lag in one.lags], 0.99),
    )


def overload_figures(capacity: float, seconds: float, results: ClientResults, normal: MixedLoad) -> Overload:
    """Return the figures of the overload, and the seconds until recovery."""
    during = [response for response in results.responses if response.due < seconds]
    refused = [response for response in during if response.status in RETRIED]
    kinds = figures_of(during)
    return Overload(
        capacity,
        len(during) / seconds,
        sum(one.answered for one in kinds) / seconds,
        len(refused) / max(1, len(during)),
        sum(response.status == NOT_SENT for response in during) / max(1, len(during)),
        sum(not response.retry_after for response in refused),
        1000 * quantile([response.received_at - response.sent_at for response in refused], 0.99),
        kinds,
        _recovery(results.responses, seconds, normal.forecast.p50 * RECOVERED_RATIO),
        results.cpu_seconds / results.seconds,
    )


def _recovery(responses: Sequence[Response], end: float, most_ms: float) -> float | None:
    """Return the seconds after ``end`` from which on every second is normal; None if the last is not."""
    last = int(max((response.due for response in responses), default=end))
    slow_second = -1
    for second in range(int(end), last):
        mine = [response for response in responses if second <= response.due < second + 1]
        forecasts = [
            1000 * response.latency for response in mine if response.kind == FORECAST and response.status == 200
        ]
        if quantile(forecasts, 0.5) > most_ms or any(not 0 < response.status < 400 for response in mine):
            slow_second = second
    if slow_second == last - 1:
        return None
    return float(slow_second + 1 - int(end)) if slow_second >= 0 else 0.0
