"""The report of ``benchmarks.load``: figures, limits and verdicts."""

from __future__ import annotations

import statistics
import sys
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.load_traffic import FORECAST

MAX_P99, MAX_CORES, GROWTH = 25.0, 1.0, 0.05  # ms of GET …/forecast, cores of one worker, share of memory
FIRST_MINUTE = 60.0
MIN_MEMORY_SECONDS = 120.0  # of load, below which memory is not checked
MAX_RECOVERY_SECONDS = 15.0  # after ten seconds of overload, refused counts are sent again for about as long
COLUMNS = ("workers", "request", "answered", "refused", "errors", "p50 ms", "p95 ms", "p99 ms")
SERVICE = (
    "workers", "seconds", "a second", "CPU s", "a CPU s", "cores", "MB PSS over time", "clients: cores, lag p99",
)  # fmt: skip


class LimitVerdict(NamedTuple):
    """A limit, the measured value, and whether it holds; None if it was not checked."""

    what: str
    measured: str
    bar: str
    holds: bool | None


def check_limits(found: dict[str, Any]) -> list[LimitVerdict]:
    """Return a verdict on each limit."""
    by_workers = {phase["workers"]: phase for phase in found["phases"]}
    steady = by_workers[found["steady"]]
    verdicts = [_latency(phase) for phase in found["phases"] if phase["workers"] <= found["cores"]]
    if 1 in by_workers:
        cores = by_workers[1]["cores"]
        verdicts.append(LimitVerdict("CPU of one worker", f"{cores:.2f} cores", f"{MAX_CORES:g}", cores < MAX_CORES))
    verdicts += [_memory(steady), _errors(found["phases"])]
    if found["overload"] is not None:
        verdicts += _overload(found["overload"])
    lost, acknowledged = found["counts_lost"], found["counts_acknowledged"]
    return [*verdicts, LimitVerdict("acknowledged counts lost", f"{lost} of {acknowledged:,}", "0", lost == 0)]


def _latency(phase: dict[str, Any]) -> LimitVerdict:
    p99s, workers = phase["forecast_p99s"], phase["workers"]
    middle = statistics.median(p99s)
    what = f"p99 of {FORECAST} under the mixed load, {workers} worker{'s' * (workers > 1)}"
    measured = f"{middle:.1f} ms (median of {len(p99s)} rounds, {min(p99s):.1f} to {max(p99s):.1f})"
    return LimitVerdict(what, measured, f"{MAX_P99:g} ms", middle <= MAX_P99)


def _memory(phase: dict[str, Any]) -> LimitVerdict:
    what, bar = "memory at the end to that after a minute", f"within {GROWTH:.0%}"
    if phase["seconds"] < MIN_MEMORY_SECONDS:
        return LimitVerdict(what, f"needs --seconds {MIN_MEMORY_SECONDS:.0f} or more; the limit is for 600", bar, None)
    after = next(weight for at, weight in phase["weights"] if at >= FIRST_MINUTE)
    end = phase["weights"][-1][1]
    return LimitVerdict(
        what, f"{end / after - 1:+.1%} ({after:.0f} to {end:.0f} MB PSS)", bar, end <= after * (1 + GROWTH)
    )


def _errors(phases: list[dict[str, Any]]) -> LimitVerdict:
    wrong = sum(one["errors"] + one["refused"] for phase in phases for one in phase["kinds"])
    return LimitVerdict("refused or failed under the mixed load", f"{wrong:,}", "0", wrong == 0)


def _overload(overload: dict[str, Any]) -> list[LimitVerdict]:
    share, bare = overload["refused_share"], overload["without_retry_after"]
    errors, after = sum(one["errors"] for one in overload["kinds"]), overload["recovered_after"]
    return [
        LimitVerdict("twice the capacity: refused with Retry-After", f"{share:.1%}, {bare} without", "some, 0",
                share > 0 and bare == 0),
        LimitVerdict("twice the capacity: other errors", f"{errors:,}", "0", errors == 0),
        LimitVerdict("recovered after", "not in time" if after is None else f"{after:.0f} s",
                f"{MAX_RECOVERY_SECONDS:.0f} s", after is not None and after <= MAX_RECOVERY_SECONDS),
    ]  # fmt: skip


def show(found: dict[str, Any], verdicts: list[LimitVerdict]) -> None:
    """Print the figures and the verdicts."""
    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    rates = found["rates"]
    console.print(
        f"{found['links']:,} links on {found['database']}, models {found['models']}; a slot every "
        f"{rates['slot_seconds']:g} s ({900 / rates['slot_seconds']:.0f} times as fast as it is) in {found['feeds']} "
        f"batches; {rates['forecasts']:g} forecasts, {rates['accuracy']:g} accuracies and {rates['network']:g} times "
        f"all forecasts a second; {found['cores']} cores, which the clients share; {found['seconds']:.0f} s in all"
    )
    load = Table(*COLUMNS, title="mixed load")
    for phase in found["phases"]:
        _rows(load, str(phase["workers"]), phase["kinds"])
    console.print(load)
    service = Table(*SERVICE, title="the service")
    for phase in found["phases"]:
        service.add_row(
            str(phase["workers"]),
            f"{phase['seconds']:.0f}",
            f"{phase['a_second']:,.0f}",
            f"{phase['cpu_seconds']:.1f}",
            f"{phase['a_cpu_second']:,.0f}",
            f"{phase['cores']:.2f}",
            _over_time(phase["weights"]),
            f"{phase['clients_busy']:.2f}, {phase['clients_lag_p99']:.2f} ms",
        )
    console.print(service)
    if (overload := found["overload"]) is not None:
        title = (
            f"twice the capacity: {overload['offered']:,.0f} a second offered to {overload['capacity']:,.0f}; "
            f"{overload['answered']:,.0f} answered, {overload['refused_share']:.1%} refused, in "
            f"{overload['refused_p99']:.0f} ms (p99), {overload['given_up_share']:.1%} given up unsent; "
            f"clients {overload['clients_busy']:.2f} cores"
        )
        table = Table(*COLUMNS, title=title)
        _rows(table, str(found["steady"]), overload["kinds"])
        console.print(table)
    judged = Table("what", "measured", "limit", "verdict")
    for verdict in verdicts:
        word = "not checked" if verdict.holds is None else "holds" if verdict.holds else "DOES NOT HOLD"
        judged.add_row(verdict.what, verdict.measured, verdict.bar, word)
    console.print(judged)


def _rows(table: Table, workers: str, kinds: list[dict[str, Any]]) -> None:
    for one in kinds:
        counts = (f"{one[name]:,}" for name in ("answered", "refused", "errors"))
        table.add_row(workers, one["kind"], *counts, *(f"{one[name]:.2f}" for name in ("p50", "p95", "p99")))


def _over_time(weights: list[tuple[float, float]]) -> str:
    """Return the memory at the beginning, after a minute, halfway and at the end, as text."""
    end = weights[-1][0]
    moments = [0.0, *([FIRST_MINUTE] if end > 1.5 * FIRST_MINUTE else []), end / 2, end]
    shown = [min(weights, key=lambda one: abs(one[0] - moment)) for moment in sorted(moments)]
    return ", ".join(f"{weight:.0f} at {at:.0f} s" for at, weight in shown)
