"""Time ``GET /v1/accuracy``, and ``/livez`` meanwhile, compared with ``/livez`` of an idle service.

A database has a count of every slot and link, and forecasts of each. A service computes the accuracy of all links
repeatedly. ``/livez`` is requested from it and alternately from a second service that is idle otherwise, so that load
from elsewhere on the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.history_load import History, databases, newest_slot
from benchmarks.http_load import Connection, request
from benchmarks.running_service import KEY, Running, running

SLOTS_A_DAY = 96
REST_SECONDS = 0.01  # between two requests to /livez
IDLE_SHARE = 0.05  # of a core, below which a service has finished the forecasts that it computes after its start
IDLE_WAIT_SECONDS = 180.0

notes = Console(stderr=True, highlight=False)


class FullHistory(History):
    """A history with forecasts of all its slots."""

    @property
    def forecast_slots(self) -> int:
        """Number of slots that forecasts were issued at."""
        return self.slots


def wait_until_idle(service: Running) -> None:
    """Wait until a service has finished its work after the start."""
    until = time.monotonic() + IDLE_WAIT_SECONDS
    while time.monotonic() < until:
        before = service.cpu_seconds()
        time.sleep(1.0)
        if service.cpu_seconds() - before < IDLE_SHARE:
            return
    raise RuntimeError(f"the service was not idle within {IDLE_WAIT_SECONDS:.0f} s of its start")


def time_request(connection: Connection, path: str) -> float:
    """Return the milliseconds that one request takes."""
    began = time.perf_counter()
    status, body = connection.send(request("GET", path, KEY))
    if status != 200:
        raise RuntimeError(f"{path}: {status}: {body[:200]!r}")
    return 1000 * (time.perf_counter() - began)


def time_requests(service: Running, control: Running, path: str | None, seconds: float) -> dict[str, list[float]]:
    """Time requests for /livez to both services alternately, while the first answers ``path`` if it is given."""
    durations: dict[str, list[float]] = {"accuracy": [], "service": [], "control": []}
    stop = threading.Event()

    def read_accuracy() -> None:
        with closing(Connection("127.0.0.1", service.port)) as connection:
            while path is not None and not stop.is_set():
                durations["accuracy"].append(time_request(connection, path))

    reader = threading.Thread(target=read_accuracy)
    reader.start()
    with ExitStack() as stack:
        ports = {"service": service.port, "control": control.port}
        livez = {name: stack.enter_context(closing(Connection("127.0.0.1", port))) for name, port in ports.items()}
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or (path is not None and reader.is_alive() and not durations["accuracy"]):
            for name, connection in livez.items():
                durations[name].append(time_request(connection, "/livez"))
            time.sleep(REST_SECONDS)
    stop.set()
    reader.join()
    return durations


def summary(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the number of answers, with their median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(milliseconds)
    places = {"p50": len(ordered) // 2, "p99": 99 * len(ordered) // 100, "max": -1}
    return {"n": len(ordered)} | {name: ordered[place] for name, place in places.items()}


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Load a database, start both services and time the reads."""
    path = f"/v1/accuracy?window={options.window}"
    with (
        databases(options.database, options.url, ("flowcast_accuracy_reads",)) as (url,),
        tempfile.TemporaryDirectory(prefix="flowcast-accuracy-") as name,
        ExitStack() as stack,
    ):
        folder, rows = Path(name), options.links * SLOTS_A_DAY * options.days
        with notes.status("loading"):
            FullHistory(url, options.links, rows, newest_slot()).load(lambda _: None).dispose()
        services = []
        shared = {"FLOWCAST_MODEL_STORE": str(folder / "models"), "FLOWCAST_CLOCK": "feed"}
        for database in (url, f"sqlite:///{folder}/control.db"):
            settings = shared | {"FLOWCAST_DATABASE_URL": database}
            services.append(stack.enter_context(running(["app", "serve", "--no-worker"], settings, "/livez", folder)))
        for service in services:
            wait_until_idle(service)
        with notes.status(path):
            idle = time_requests(services[0], services[1], None, options.seconds)
            busy = time_requests(services[0], services[1], path, options.seconds)
    return {
        f"GET {path}": summary(busy["accuracy"]),
        "GET /livez meanwhile": summary(busy["service"]),
        "the same of an idle service": summary(busy["control"]),
        "GET /livez before": summary(idle["service"]),
    }


def show(found: dict[str, dict[str, float]]) -> None:
    """Print the times."""
    table = Table("read", "answers", "p50", "p99", "max")
    for name, row in found.items():
        table.add_row(name, f"{row['n']:,}", *(f"{row[figure]:.1f} ms" for figure in ("p50", "p99", "max")))
    Console(highlight=False).print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy_reads", description=__doc__.split("\n")[0])
    parser.add_argument("--links", type=int, default=1000, help="links (1000)")
    parser.add_argument("--days", type=int, default=9, help="days of counts and forecasts (9)")
    parser.add_argument("--window", default="24h", help="window that accuracy is measured over (24h)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each part is timed (30)")
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="sqlite", help="kind of database")
    parser.add_argument("--url", help="PostgreSQL to create a database on (default: a temporary server)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found, indent=2)) if options.json else show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
