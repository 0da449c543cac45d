"""The service under load: 1,000 links post each slot as it closes while readers ask for forecasts and accuracy.

A realistic pace is 1,000 counts every 15 minutes and 50 forecasts a second. Here forecasts are read ten times as
often, and a slot lasts ``--slot-seconds``, a minute, instead of 15 minutes. Its counts come in ``--feeds`` batches,
each over a connection of its own, spread over half of the slot; readers ask at random moments. Responses are timed
from when their request was due.

- For each of ``--workers`` a service is started on a database of its own and gets rounds of mixed load, a slot each:
  ``--seconds`` in all for ``--steady`` workers, at most a minute for one, at most twenty seconds for the others.
- With ``--steady`` workers it is then asked as much as it can serve, and after that twice as much.

Exit code 1 if a bar that could be judged does not hold.
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
from benchmarks.load_clients import Ask, Told, in_own_process
from benchmarks.load_figures import Overload, Phase, mixed_figures, overload_figures
from benchmarks.load_report import judge, show
from benchmarks.load_traffic import LINES, POST, Rates, Traffic, drive, overload, saturate
from benchmarks.model_city import ModelCity
from benchmarks.prepared_city import copied, postgresql, prepared
from benchmarks.running_service import Running, running

FIRST_SLOT = 100  # the city comes with a day of counts
WARM_SLOTS = 2
FULL_SECONDS, OVERLOAD_SECONDS, RECOVERY_SECONDS = 8.0, 10.0, 20.0
ONE_WORKER_SECONDS, SHORT_SECONDS = 60.0, 20.0  # of mixed load at most, for one worker and for other numbers

notes = Console(stderr=True, highlight=False)


@dataclass
class City:
    """The city under load, and how far its feeds have come."""

    engine: Engine
    built: ModelCity
    settings: dict[str, str]
    feeds: int
    rates: Rates
    next_slot: int = FIRST_SLOT
    acknowledged: set[tuple[int, int]] = field(default_factory=set)  # slot and feed

    def traffic(self, slots: int) -> tuple[Traffic, int]:
        """Give the batches of the next slots, and the number of the first."""
        first, self.next_slot = self.next_slot, self.next_slot + slots
        n = len(self.built.link_ids)
        parts = [range(i * n // self.feeds, (i + 1) * n // self.feeds) for i in range(self.feeds)]
        batches = [self.built.batch(part, first + slot, 1) for slot in range(slots) for part in parts]
        return Traffic(self.built.link_ids, batches, self.feeds, self.rates), first

    def note(self, told: Told, first: int) -> None:
        """Take note of what was acknowledged."""
        taken = [answer.place for answer in told.answers if answer.kind == POST and answer.status == 200]
        self.acknowledged |= {(first + place // self.feeds, place % self.feeds) for place in taken}

    def lost(self) -> tuple[int, int]:
        """Count the acknowledged counts, and those of them that are not in the database as they were sent."""
        n = len(self.built.link_ids)
        slots = self.next_slot - FIRST_SLOT
        rows = self.built.rows(self.engine, n, FIRST_SLOT, slots)
        keys = [key for key, _, _, _ in rows[::slots]]
        with reading(self.engine) as session:
            found = {tuple(row) for row in counts_between(session, keys, rows[0][1], rows[-1][1]).tolist()}
        feed_of = {link: feed for feed in range(self.feeds) for link in self._links(feed, n)}
        sent = [row for i, row in enumerate(rows) if (FIRST_SLOT + i % slots, feed_of[i // slots]) in self.acknowledged]
        return len(sent), sum(row not in found for row in sent)

    def _links(self, feed: int, n: int) -> range:
        return range(feed * n // self.feeds, (feed + 1) * n // self.feeds)


@dataclass
class Station:
    """A service with some number of workers, in a city of its own, and what was found there round by round."""

    workers: int
    service: Running
    city: City
    rounds: list[Told] = field(default_factory=list)
    weights: list[tuple[float, float]] = field(default_factory=list)  # seconds of mixed load so far, and megabytes

    def warm_up(self) -> None:
        """Wait until each process has all models, and let it see every kind of question."""
        self.service.wait_for_models(self.workers * len(self.city.built.link_ids))
        traffic, first = self.city.traffic(WARM_SLOTS)
        posts = [Ask(0.0, POST, b"", place) for place in range(WARM_SLOTS * self.city.feeds)]
        for told in in_own_process(drive, self.service, traffic, [posts, traffic.every_link()], LINES):
            self.city.note(told, first)
        self.weights.append((0.0, self.service.pss_megabytes()))

    def go_round(self) -> None:
        """Send the mix for a slot."""
        seconds = self.city.rates.slot_seconds
        traffic, first = self.city.traffic(1)
        (mixed,) = in_own_process(drive, self.service, traffic, [traffic.mixed(seconds, len(self.rounds))], LINES)
        self.city.note(mixed, first)
        self.rounds.append(mixed)
        self.weights.append((self.weights[-1][0] + seconds, self.service.pss_megabytes()))

    def found(self) -> Phase:
        """Sum the rounds up."""
        return mixed_figures(self.workers, self.rounds, self.weights)


def overloaded(station: Station, normal: Phase) -> Overload:
    """Find out how much can be served, offer twice as much, and see how the service comes back."""
    service, city = station.service, station.city
    usual = city.rates.a_second(city.feeds)
    notes.print(f"as much as it can serve, for {FULL_SECONDS:.0f} s")
    traffic, first = city.traffic(int(40 * FULL_SECONDS / city.rates.slot_seconds))
    told = in_own_process(saturate, service, traffic, FULL_SECONDS, 2)
    city.note(told, first)
    capacity = sum(answer.status < 400 for answer in told.answers) / told.seconds
    times = 2 * capacity / usual
    notes.print(f"  {capacity:,.0f} requests a second; now twice as many for {OVERLOAD_SECONDS:.0f} s, then the usual")
    slots, after = int(OVERLOAD_SECONDS * times / city.rates.slot_seconds), RECOVERY_SECONDS / city.rates.slot_seconds
    traffic, first = city.traffic(slots + int(after))
    asks = traffic.mixed(OVERLOAD_SECONDS, 3, times=times)
    asks += traffic.mixed(RECOVERY_SECONDS, 4, first=slots * city.feeds, begin=OVERLOAD_SECONDS)
    told = in_own_process(overload, service, traffic, asks)
    city.note(told, first)
    return overload_figures(capacity, OVERLOAD_SECONDS, told, normal)


@contextmanager
def city_of(options: argparse.Namespace) -> Iterator[tuple[City, Path]]:
    """Make the city in a database of its own."""
    rates = Rates(options.forecasts, options.accuracy, options.network_reads, options.slot_seconds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowcast-load-")))
        sqlite = options.database == "sqlite"
        url = f"sqlite:///{folder / 'flowcast.db'}" if sqlite else stack.enter_context(postgresql())
        notes.print(f"making a city of {options.links:,} links with a model each, on {options.database}")
        made = stack.enter_context(prepared(url, folder, options.links, notes, network=options.network))
        engine, built, settings = made
        # On the clock of production: it lets slots of the past come as fast as they like, too.
        settings |= {"FLOWCAST_CLOCK": "wall", "FLOWCAST_MODELS_IN_MEMORY": str(max(5000, options.links))}
        # Slots of the past count as fresh, as those of a live feed are: otherwise profiles would replace all forecasts.
        settings |= {"FLOWCAST_STALE_AFTER_MINUTES": str(100 * 365 * 24 * 60)}
        yield City(engine, built, settings, options.feeds, rates), folder


@contextmanager
def station(workers: int, city: City, folder: Path) -> Iterator[Station]:
    """Start a service in a copy of the city, which nothing was posted to yet, and warm it up."""
    notes.print(f"{workers} worker{'s' * (workers > 1)}: start and warm-up")
    with copied(city.engine, f"for_{workers}") as (engine, url):
        settings = city.settings | {"FLOWCAST_DATABASE_URL": url}
        with running(["app", "serve", "--workers", str(workers)], settings, "/readyz", folder) as service:
            started = Station(workers, service, replace(city, engine=engine, settings=settings, acknowledged=set()))
            started.warm_up()
            yield started


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    phases: list[Phase] = []
    over, sent, lost, began = None, 0, 0, time.monotonic()
    with city_of(options) as (city, folder):
        for workers in options.workers:
            with station(workers, city, folder) as started, Progress(console=notes, transient=True) as progress:
                for _ in progress.track(range(_rounds(workers, options)), description="mixed load"):
                    started.go_round()
                phases.append(started.found())
                if workers == options.steady and not options.no_overload:
                    over = overloaded(started, phases[-1])
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
        "overload": None if over is None else asdict(over),
        "counts_acknowledged": sent,
        "counts_lost": lost,
        "seconds": time.monotonic() - began,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the steady mixed load (60)")
    parser.add_argument("--workers", type=_numbers, default=[1, 2], help="worker counts, in turn (1,2)")
    parser.add_argument("--steady", type=int, default=2, help="worker count of the long run and of the overload (2)")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql", help="(postgresql)")
    parser.add_argument("--links", type=int, default=1000, help="links with a trained model each (1000)")
    parser.add_argument("--feeds", type=int, default=20, help="batches that a slot of all links comes in (20)")
    parser.add_argument("--slot-seconds", type=float, default=60.0, help="how long a slot lasts here (60)")
    parser.add_argument("--forecasts", type=float, default=500.0, help="GET …/forecast a second (500)")
    parser.add_argument("--accuracy", type=float, default=5.0, help="GET …/accuracy a second (5)")
    parser.add_argument("--network-reads", type=float, default=1.0, help="GET /v1/forecasts of all links a second (1)")
    parser.add_argument("--network", action="store_true", help="models of one network instead of models on lags")
    parser.add_argument("--no-overload", action="store_true", help="leave out the overload")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if options.steady not in options.workers:
        parser.error(f"--steady={options.steady} must be one of --workers={','.join(map(str, options.workers))}")
    if not 1 <= options.feeds <= options.links:
        parser.error(f"--feeds={options.feeds} must be from 1 to --links={options.links}")
    if options.seconds < options.slot_seconds:
        parser.error(f"--seconds={options.seconds:g} must be at least --slot-seconds={options.slot_seconds:g}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped, and tidied up after
    found = measure(options)
    verdicts = judge(found)
    if options.json:
        print(json.dumps(found | {"verdicts": [verdict._asdict() for verdict in verdicts]}, indent=2))
    else:
        show(found, verdicts)
    return 0 if all(verdict.holds is not False for verdict in verdicts) else 1


def _rounds(workers: int, options: argparse.Namespace) -> int:
    """Return how many rounds a service gets, of a slot each."""
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
