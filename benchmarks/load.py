"""The service under load: 1,000 links post each slot as it closes while readers ask for forecasts and accuracy.

Time is compressed: a slot lasts ``--slot-seconds`` instead of 15 minutes, ten seconds by default, which is
90 times as many counts as a city of that size sends. Its counts come in ``--feeds`` batches, each over a
connection of its own, spread over half of the slot; readers ask at random moments. Answers are timed from
when the question was meant to be sent.

- For each of ``--workers`` the service is started anew, forecasts are asked for alone, then the mixed
  load follows: ``--seconds`` long for ``--steady`` workers, a third of it, 20 s at most, for the others.
- With ``--steady`` workers it is then asked as much as it can serve, and after that twice as much.

With ``--seconds 60`` all of it takes some four minutes. Exit code 1 if a bar that could be judged does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import Engine

from app.counts.queries import counts_between
from app.database import reading
from benchmarks.load_clients import Ask, Told, in_own_process
from benchmarks.load_figures import Overload, Phase, mixed_figures, overload_figures
from benchmarks.load_report import judge, show
from benchmarks.load_traffic import LINES, POST, Rates, Traffic, drive, overload, saturate
from benchmarks.model_city import ModelCity
from benchmarks.prepared_city import postgresql, prepared
from benchmarks.running_service import Running, running

FIRST_SLOT = 100  # the city comes with a day of counts
WARM_SLOTS = 2
UNLOADED_SECONDS = 5.0
FULL_SECONDS, OVERLOAD_SECONDS, RECOVERY_SECONDS = 8.0, 10.0, 20.0
WEIGH_SECONDS = 5.0
MOST_SECONDS = 20.0  # of the mixed load for worker counts that are not the steady one

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


class Scales:
    """Weighs a service every few seconds."""

    def __init__(self, service: Running) -> None:
        self._service, self._over = service, threading.Event()
        self.weights: list[tuple[float, float]] = []  # when, by the monotonic clock, and megabytes
        self._thread = threading.Thread(target=self._weigh, daemon=True)

    def __enter__(self) -> Scales:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _weigh(self) -> None:
        over = False
        while not over:
            over = self._over.wait(WEIGH_SECONDS)
            self.weights.append((time.monotonic(), self._service.pss_megabytes()))


def under_load(service: Running, city: City, workers: int, seconds: float) -> Phase:
    """Measure forecasts alone, then the mixed load, all over the same connections."""
    notes.print(f"{workers} worker{'s' * (workers > 1)}: warm-up, forecasts alone, then {seconds:.0f} s of mixed load")
    traffic, first = city.traffic(WARM_SLOTS + int(seconds / city.rates.slot_seconds))
    begin = WARM_SLOTS * city.feeds
    plans = [
        [Ask(0.0, POST, b"", place) for place in range(begin)],  # so that each process has the models of its feeds
        traffic.every_link(),
        traffic.unloaded(UNLOADED_SECONDS, workers),
        traffic.mixed(seconds, 1, first=begin),
    ]
    with Scales(service) as scales:
        told = in_own_process(drive, service, traffic, plans, LINES)
    for one in told:
        city.note(one, first)
    alone, mixed = told[2:]
    unloaded = [answer.took for answer in alone.answers if answer.status == 200]
    weights = [(at - mixed.began, weight) for at, weight in scales.weights if at >= mixed.began - WEIGH_SECONDS]
    return mixed_figures(workers, seconds, unloaded, mixed, weights)


def overloaded(service: Running, city: City, normal: Phase) -> Overload:
    """Find out how much can be served, offer twice as much, and see how the service comes back."""
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
        yield City(engine, built, settings | {"FLOWCAST_CLOCK": "wall"}, options.feeds, rates), folder


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    phases, over = [], None
    began = time.monotonic()
    with city_of(options) as (city, folder):
        for workers in options.workers:
            steady = workers == options.steady
            wanted = options.seconds if steady else min(MOST_SECONDS, options.seconds / 3)
            slots = max(1, round(wanted / options.slot_seconds))  # whole ones, so that the mixes are alike
            seconds = slots * options.slot_seconds
            serve = ["app", "serve", "--workers", str(workers)]
            with running(serve, city.settings, "/readyz", folder) as service:
                phases.append(under_load(service, city, workers, seconds))
                if steady and not options.no_overload:
                    over = overloaded(service, city, phases[-1])
        sent, lost = city.lost()
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
    parser.add_argument("--workers", type=_numbers, default=[1, 2, 3, 4], help="worker counts, in turn (1,2,3,4)")
    parser.add_argument("--steady", type=int, default=2, help="worker count of the long run and of the overload (2)")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql", help="(postgresql)")
    parser.add_argument("--links", type=int, default=1000, help="links with a trained model each (1000)")
    parser.add_argument("--feeds", type=int, default=20, help="batches that a slot of all links comes in (20)")
    parser.add_argument("--slot-seconds", type=float, default=10.0, help="how long a slot lasts here (10)")
    parser.add_argument("--forecasts", type=float, default=200.0, help="GET …/forecast a second (200)")
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


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if not all(1 <= number <= 64 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must be worker counts from 1 to 64, comma-separated")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
