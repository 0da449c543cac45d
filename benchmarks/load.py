"""Measure the service while 1,000 links post each slot as it closes and readers request forecasts and accuracy.

The load is ten times a realistic one, in which a slot lasts 15 minutes and 50 forecasts are read a second. A slot lasts
``--slot-seconds``, 90. Its counts are posted in ``--feeds`` batches, each over its own connection, spread over half of
the slot; reads are sent at random times. Response times are measured from when a request was due.

Besides forecasts of single links, which a control system reads, there are

- 3 accuracies of a link a second: a control system that reads those of all links once an hour makes 0.3 at a realistic
  pace;
- all forecasts once a second: an operators' page reads them after each batch and every 15 s otherwise, which is once
  in four seconds at this pace, and four pages are open.

- For each of ``--workers`` a service is started on its own database and gets rounds of mixed load, a slot each:
  ``--seconds`` in all for ``--steady`` workers, at most 90 for one, one slot for the others.
- With ``--steady`` workers its capacity is then measured, and after that twice as much load is offered.

The exit code is 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from sqlalchemy import Engine

from app.core.database import reading
from app.counts.queries import counts_between
from benchmarks.load_clients import ClientResults, PlannedRequest, run_in_process
from benchmarks.load_figures import MixedLoad, Overload, mixed_figures, overload_figures
from benchmarks.load_report import check_limits, show
from benchmarks.load_traffic import CONNECTIONS, POST, Rates, Traffic, drive, overload, saturate
from benchmarks.model_city import ModelCity
from benchmarks.prepared_city import copied, postgresql, prepared
from benchmarks.running_service import Running, running

FIRST_SLOT = 100  # the city has a day of counts
WARM_SLOTS = 2
FULL_SECONDS, OVERLOAD_SECONDS, RECOVERY_SECONDS = 8.0, 10.0, 20.0
ONE_WORKER_SECONDS, SHORT_SECONDS = 90.0, 20.0  # of mixed load at most, for one worker and for other numbers

notes = Console(stderr=True, highlight=False)


@dataclass
class LoadedCity:
    """The city under load, and the state of its feeds."""

    engine: Engine
    built: ModelCity
    settings: dict[str, str]
    feeds: int
    rates: Rates
    next_slot: int = FIRST_SLOT
    acknowledged: set[tuple[int, int]] = field(default_factory=set)  # slot and feed

    def traffic(self, slots: int) -> tuple[Traffic, int]:
        """Return the batches of the next slots, and the number of the first."""
        first, self.next_slot = self.next_slot, self.next_slot + slots
        n = len(self.built.link_ids)
        parts = [range(i * n // self.feeds, (i + 1) * n // self.feeds) for i in range(self.feeds)]
        batches = [self.built.batch(part, first + slot, 1) for slot in range(slots) for part in parts]
        return Traffic(self.built.link_ids, batches, self.feeds, self.rates), first

    def record_acknowledged(self, results: ClientResults, first: int) -> None:
        """Record the batches that were acknowledged."""
        taken = [response.batch for response in results.responses if response.kind == POST and response.status == 200]
        self.acknowledged |= {(first + batch // self.feeds, batch % self.feeds) for batch in taken}

    def lost(self) -> tuple[int, int]:
        """Return the number of acknowledged counts, and of those that are not stored as they were sent."""
        n = len(self.built.link_ids)
        slots = self.next_slot - FIRST_SLOT
        rows = self.built.rows(self.engine, n, FIRST_SLOT, slots)
        keys = [key for key, _, _, _ in rows[::slots]]
        with reading(self.engine) as session:
            stored = {tuple(row) for row in counts_between(session, keys, rows[0][1], rows[-1][1]).tolist()}
        feed_of = {link: feed for feed in range(self.feeds) for link in self._links(feed, n)}
        sent = [row for i, row in enumerate(rows) if (FIRST_SLOT + i % slots, feed_of[i // slots]) in self.acknowledged]
        return len(sent), sum(row not in stored for row in sent)

    def _links(self, feed: int, n: int) -> range:
        return range(feed * n // self.feeds, (feed + 1) * n // self.feeds)


@dataclass
class ServiceUnderLoad:
    """A service with some number of workers on its own city, and the results of each round."""

    workers: int
    service: Running
    city: LoadedCity
    rounds: list[ClientResults] = field(default_factory=list)
    weights: list[tuple[float, float]] = field(default_factory=list)  # seconds of mixed load so far, and megabytes

    def warm_up(self) -> None:
        """Wait until each process has loaded all models, and send it every kind of request."""
        self.service.wait_for_models(self.workers * len(self.city.built.link_ids))
        traffic, first = self.city.traffic(WARM_SLOTS)
        posts = [PlannedRequest(0.0, POST, b"", batch) for batch in range(WARM_SLOTS * self.city.feeds)]
        for results in run_in_process(drive, self.service, traffic, [posts, traffic.warm_up_reads()], CONNECTIONS):
            self.city.record_acknowledged(results, first)
        self.weights.append((0.0, self.service.pss_megabytes()))

    def run_round(self) -> None:
        """Send the mixed load of a slot."""
        seconds = self.city.rates.slot_seconds
        traffic, first = self.city.traffic(1)
        (mixed,) = run_in_process(drive, self.service, traffic, [traffic.mixed(seconds, len(self.rounds))], CONNECTIONS)
        self.city.record_acknowledged(mixed, first)
        self.rounds.append(mixed)
        self.weights.append((self.weights[-1][0] + seconds, self.service.pss_megabytes()))

    def summary(self) -> MixedLoad:
        """Return the figures of all rounds."""
        return mixed_figures(self.workers, self.rounds, self.weights)


def measure_overload(started: ServiceUnderLoad, normal: MixedLoad) -> Overload:
    """Measure the capacity, offer twice as much, and measure the recovery."""
    service, city = started.service, started.city
    normal_rate = city.rates.requests_per_second(city.feeds)
    notes.print(f"measuring the capacity for {FULL_SECONDS:.0f} s")
    traffic, first = city.traffic(int(40 * FULL_SECONDS / city.rates.slot_seconds))
    results = run_in_process(saturate, service, traffic, FULL_SECONDS, 2)
    city.record_acknowledged(results, first)
    capacity = sum(response.status < 400 for response in results.responses) / results.seconds
    times = 2 * capacity / normal_rate
    notes.print(
        f"  {capacity:,.0f} requests a second; now twice as many for {OVERLOAD_SECONDS:.0f} s, then the normal load"
    )
    slots, after = int(OVERLOAD_SECONDS * times / city.rates.slot_seconds), RECOVERY_SECONDS / city.rates.slot_seconds
    traffic, first = city.traffic(slots + int(after))
    planned = traffic.mixed(OVERLOAD_SECONDS, 3, times=times)
    planned += traffic.mixed(RECOVERY_SECONDS, 4, first=slots * city.feeds, begin=OVERLOAD_SECONDS)
    results = run_in_process(overload, service, traffic, planned)
    city.record_acknowledged(results, first)
    return overload_figures(capacity, OVERLOAD_SECONDS, results, normal)


@contextmanager
def city_of(options: argparse.Namespace) -> Iterator[tuple[LoadedCity, Path]]:
    """Create the city in a new database."""
    rates = Rates(options.forecasts, options.accuracy, options.network_reads, options.slot_seconds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowcast-load-")))
        sqlite = options.database == "sqlite"
        url = f"sqlite:///{folder / 'flowcast.db'}" if sqlite else stack.enter_context(postgresql())
        notes.print(f"making a city of {options.links:,} links with a model each, on {options.database}")
        made = stack.enter_context(prepared(url, folder, options.links, notes, network=options.network))
        engine, built, settings = made
        settings |= {"FLOWCAST_MODELS_IN_MEMORY": str(max(5000, options.links))}
        yield LoadedCity(engine, built, settings, options.feeds, rates), folder


@contextmanager
def service_under_load(workers: int, city: LoadedCity, folder: Path) -> Iterator[ServiceUnderLoad]:
    """Start a service on a new copy of the city and warm it up."""
    notes.print(f"{workers} worker{'s' * (workers > 1)}: start and warm-up")
    with copied(city.engine, f"for_{workers}") as (engine, url):
        settings = city.settings | {"FLOWCAST_DATABASE_URL": url}
        with running(["app", "serve", "--workers", str(workers)], settings, "/readyz", folder) as service:
            started = ServiceUnderLoad(
                workers, service, replace(city, engine=engine, settings=settings, acknowledged=set())
            )
            started.warm_up()
            yield started


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    phases: list[MixedLoad] = []
    overload_results, sent, lost, began = None, 0, 0, time.monotonic()
    with city_of(options) as (city, folder):
        for workers in options.workers:
            with (
                service_under_load(workers, city, folder) as started,
                Progress(console=notes, transient=True) as progress,
            ):
                for _ in progress.track(range(_rounds(workers, options)), description="mixed load"):
                    started.run_round()
                phases.append(started.summary())
                if workers == options.steady and not options.no_overload:
                    overload_results = measure_overload(started, phases[-1])
                more_sent, more_lost = started.city.lost()
                sent, lost = sent + more_sent, lost + more_lost
    phases.sort(key=lambda phase: phase.workers)
    return {
        "links": options.links,
        "feeds": options.feeds,
        "database": options.database,
        "models": "NETWORK" if options.network else "on lags",
        "rates": asdict(city.rates),
        "steady": options.steady,
        "cores": os.cpu_count() or 1,
        "phases": [asdict(phase) for phase in phases],
        "overload": None if overload_results is None else asdict(overload_results),
        "counts_acknowledged": sent,
        "counts_lost": lost,
        "seconds": time.monotonic() - began,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="length of the steady mixed load (90)")
    parser.add_argument("--workers", type=_numbers, default=[1, 2], help="numbers of workers, comma-separated (1,2)")
    parser.add_argument("--steady", type=int, default=2, help="number of workers in the long run and the overload (2)")
    parser.add_argument(
        "--database", choices=("postgresql", "sqlite"), default="postgresql", help="kind of database (postgresql)"
    )
    parser.add_argument("--links", type=int, default=1000, help="links with a trained model each (1000)")
    parser.add_argument("--feeds", type=int, default=20, help="batches per slot of all links (20)")
    parser.add_argument("--slot-seconds", type=float, default=90.0, help="length of a slot (90), at most --seconds")
    parser.add_argument("--forecasts", type=float, default=500.0, help="GET …/forecast a second (500)")
    parser.add_argument("--accuracy", type=float, default=3.0, help="GET …/accuracy a second (3)")
    parser.add_argument("--network-reads", type=float, default=1.0, help="GET /v1/forecasts of all links a second (1)")
    parser.add_argument("--network", action="store_true", help="models of one network instead of models on lags")
    parser.add_argument("--no-overload", action="store_true", help="leave out the overload")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if options.steady not in options.workers:
        parser.error(f"--steady={options.steady} must be one of --workers={','.join(map(str, options.workers))}")
    if not 1 <= options.feeds <= options.links:
        parser.error(f"--feeds={options.feeds} must be from 1 to --links={options.links}")
    options.slot_seconds = min(options.slot_seconds, options.seconds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that processes are stopped and folders removed
    summary = measure(options)
    verdicts = check_limits(summary)
    if options.json:
        print(json.dumps(summary | {"verdicts": [verdict._asdict() for verdict in verdicts]}, indent=2))
    else:
        show(summary, verdicts)
    return 0 if all(verdict.holds is not False for verdict in verdicts) else 1


def _rounds(workers: int, options: argparse.Namespace) -> int:
    """Return the number of rounds, of a slot each."""
    most: float = math.inf if workers == options.steady else ONE_WORKER_SECONDS if workers == 1 else SHORT_SECONDS
    rounds: int = max(1, round(min(options.seconds, most) / options.slot_seconds))
    return rounds


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if not all(1 <= number <= 64 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must be worker counts from 1 to 64, comma-separated")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
