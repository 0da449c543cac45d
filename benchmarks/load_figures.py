"""What ``benchmarks.load`` makes of the clients' answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.load_clients import GIVEN_UP, RETRIED, Answer, Told
from benchmarks.load_traffic import FORECAST, KINDS

CALM = 2.0  # times the usual median, below which a second is as usual


@dataclass(frozen=True)
class Figures:
    """One kind of request: how many were answered and how fast, in milliseconds."""

    kind: str
    answered: int
    refused: int
    errors: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Phase:
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
    """Twice as much as can be served, and what came after."""

    capacity: float  # requests a second
    offered: float
    answered: float
    refused_share: float
    given_up_share: float  # not sent, for no connection came free in time
    without_retry_after: int
    refused_p99: float  # ms: how long it takes to be refused
    kinds: list[Figures]
    recovered_after: float | None  # seconds until forecasts are as fast as usual and nothing is refused
    clients_busy: float


def quantile(values: Sequence[float], share: float) -> float:
    """Give the value that a share of values do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def figures_of(answers: Sequence[Answer]) -> list[Figures]:
    """Sum answers up by kind."""
    found = []
    for kind in KINDS:
        mine = [answer for answer in answers if answer.kind == kind and answer.status != GIVEN_UP]
        good = [1000 * answer.took for answer in mine if 0 < answer.status < 400]
        refused = sum(answer.status in RETRIED for answer in mine)
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


def mixed_figures(workers: int, rounds: Sequence[Told], weights: list[tuple[float, float]]) -> Phase:
    """Sum up the rounds of the mixed load."""
    kinds = figures_of([answer for one in rounds for answer in one.answers])
    answered, cpu_seconds = sum(one.answered for one in kinds), sum(one.service_cpu_seconds for one in rounds)
    seconds = sum(one.seconds for one in rounds)
    return Phase(
        workers,
        weights[-1][0],
        kinds,
        answered / seconds,
        cpu_seconds,
        answered / cpu_seconds,
        cpu_seconds / seconds,
        [one.p99 for told in rounds for one in figures_of(told.answers) if one.kind == FORECAST],
        weights,
        sum(one.cpu_seconds for one in rounds) / seconds,
        1000 * quantile([lag for one in rounds for lag in one.lags], 0.99),
    )


def overload_figures(capacity: float, seconds: float, told: Told, normal: Phase) -> Overload:
    """Sum the overload up, and find the second from which on all is as usual."""
    during = [answer for answer in told.answers if answer.at < seconds]
    refused = [answer for answer in during if answer.status in RETRIED]
    kinds = figures_of(during)
    return Overload(
        capacity,
        len(during) / seconds,
        sum(one.answered for one in kinds) / seconds,
        len(refused) / max(1, len(during)),
        sum(answer.status == GIVEN_UP for answer in during) / max(1, len(during)),
        sum(not answer.retry_after for answer in refused),
        1000 * quantile([answer.came - answer.sent for answer in refused], 0.99),
        kinds,
        _recovery(told.answers, seconds, normal.forecast.p50 * CALM),
        told.cpu_seconds / told.seconds,
    )


def _recovery(answers: Sequence[Answer], end: float, most_ms: float) -> float | None:
    """Give the seconds after ``end`` from which on every second is calm; None where the last is not."""
    last = int(max((answer.at for answer in answers), default=end))
    restless = -1
    for second in range(int(end), last):
        mine = [answer for answer in answers if second <= answer.at < second + 1]
        forecasts = [1000 * answer.took for answer in mine if answer.kind == FORECAST and answer.status == 200]
        if quantile(forecasts, 0.5) > most_ms or any(not 0 < answer.status < 400 for answer in mine):
            restless = second
    if restless == last - 1:
        return None
    return float(restless + 1 - int(end)) if restless >= 0 else 0.0
