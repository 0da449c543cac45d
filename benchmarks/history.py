"""Time the service's reads and writes over a long history, compared with those over one hundredth of it.

Two databases, on one PostgreSQL or as SQLite files, hold the same links, and counts and forecasts that end at the
same slot; the small one has the last hundredth of the days. So every query has the same result in both. Reads that go
back further than the small history are left out. The service's functions and its HTTP calls are timed alternately.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sqlalchemy import Engine

from app.accuracy.measure import link_accuracy, network_accuracy
from app.core.database import is_sqlite, reading
from app.counts.history import count_history
from app.counts.queries import counts_between, newest_slot_end, newest_slots, stored_span
from app.events.queries import latest_forecasts
from app.forecasts.history import read_history
from app.forecasts.queries import stored_forecasts
from app.links.queries import LinkInfo, all_links
from benchmarks.history_load import SLOT, History, databases, newest_slot
from benchmarks.http_load import Connection, request
from benchmarks.query_plans import explain_query, recorded_queries
from benchmarks.running_service import KEY, running

BAR = 1.5
FAR_DAYS = 14  # that some reads go back: the health of a detector, and a link's accuracy compared with last week's
LAGS = 45
MIN_ROUNDS = 61
WARM_UP = 8  # PostgreSQL's driver prepares a statement at its sixth execution
REQUESTED_LINKS = 8  # over HTTP, so that after the warm-up forecasts come from memory

Read = Callable[[Any, LinkInfo], object]

notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Loaded:
    """A database with its links."""

    history: History
    engine: Engine
    links: list[LinkInfo]


def reads(links: Sequence[LinkInfo], last: int, hours: int, *, far: bool = True) -> dict[str, Read]:
    """Return the service's database reads by name; those that go far back only if ``far``."""
    far_back: dict[str, Read] = {
        f"accuracy of a link over {hours} h": lambda session, link: link_accuracy(
            session, link.link_id, 1, window=window
        )
    }
    keys, window = [link.link_key for link in links], f"{hours}h"
    as_of = dict.fromkeys(keys, last)
    lags = last - (LAGS - 1) * SLOT
    return {
        "newest slot of a link": lambda session, link: newest_slots(session, [link.link_key]),
        "newest slot of all links": lambda session, _: newest_slots(session),
        "end of the newest slot of any link": lambda session, _: newest_slot_end(session),
        "oldest and newest slot of a link": lambda session, link: stored_span(session, link.link_key),
        "lag window of a link": lambda session, link: counts_between(session, [link.link_key], lags, last),
        "lag windows of all links": lambda session, _: counts_between(session, keys, lags, last),
        "a day of a link's counts": lambda session, link: count_history(
            session, link.link_id, None, None, limit=96, cursor=None, corrections=True
        ),
        "latest forecast of a link": lambda session, link: stored_forecasts(session, [link], as_of),
        "latest forecasts of all links": lambda session, _: stored_forecasts(session, links, as_of),
        "latest forecasts, for webhooks": lambda session, _: latest_forecasts(session),
        "a page of a link's past forecasts": lambda session, link: read_history(
            session, link.link_id, horizon=1, limit=40
        ),
        f"accuracy of all links over {hours} h": lambda session, _: network_accuracy(session, 1, window=window),
    } | (far_back if far else {})


def requests(hours: int, far: bool) -> dict[str, str]:
    """Return the paths of the timed GETs by name; those that go far back only if ``far``."""
    queries = {
        "/v1/links/{link}/forecast": "GET …/forecast",
        "/v1/forecasts": "GET /v1/forecasts",
        "/v1/links/{link}/counts": "GET …/counts",
        "/v1/links/{link}/forecasts?horizon=1&limit=40": "GET …/forecasts",
        f"/v1/accuracy?window={hours}h": "GET /v1/accuracy",
        "/readyz": "GET /readyz",
    }
    if far:
        queries[f"/v1/links/{{link}}/accuracy?window={hours}h"] = "GET …/accuracy"
        queries["/v1/links/{link}/health"] = "GET …/health"
    return {name: path for path, name in queries.items()}


def time_alternately(
    small: Callable[[int], object], large: Callable[[int], object], seconds: float
) -> tuple[float, float]:
    """Call both alternately, and return the median milliseconds of each."""
    durations: tuple[list[float], list[float]] = ([], [])
    until, n = time.perf_counter() + seconds, -WARM_UP
    while n < MIN_ROUNDS or time.perf_counter() < until:
        for place, call in ((0, small), (1, large)) if n % 2 else ((1, large), (0, small)):
            started = time.perf_counter()
            call(n)
            if n >= 0:
                durations[place].append(1000 * (time.perf_counter() - started))
        n += 1
    return statistics.median(durations[0]), statistics.median(durations[1])


def read_once(loaded: Loaded, read: Read, n: int) -> None:
    """Read as the service does, in a new session."""
    with reading(loaded.engine) as session:
        read(session, loaded.links[n % len(loaded.links)])


def planning(loaded: Loaded, read: Read) -> dict[str, float] | None:
    """Return the number of months that a read's queries may scan and their planning time; None on SQLite."""
    if is_sqlite(loaded.engine):
        return None
    with recorded_queries(loaded.engine) as queries:
        read_once(loaded, read, 0)
    with loaded.engine.connect() as connection:
        plans = [explain_query(connection, *question) for question in queries]
    months = {month for plan in plans for month in plan.months}
    return {"months": len(months), "planning_ms": sum(plan.milliseconds for plan in plans)}


def reaches_far(small: Loaded) -> bool:
    """Return whether the small history is long enough for all reads."""
    return small.history.slots >= FAR_DAYS * 96


def time_reads(small: Loaded, large: Loaded, hours: int, seconds: float) -> list[dict[str, Any]]:
    """Time the service's own functions."""
    found = []
    small_reads, large_reads = (
        reads(one.links, one.history.last, hours, far=reaches_far(small)) for one in (small, large)
    )
    for name in small_reads:
        with notes.status(name):
            one, other = partial(read_once, small, small_reads[name]), partial(read_once, large, large_reads[name])
            ms = time_alternately(one, other, seconds)
            plans = planning(small, small_reads[name]), planning(large, large_reads[name])
        found.append({"read": name, "small_ms": ms[0], "large_ms": ms[1], "small": plans[0], "large": plans[1]})
    return found


def time_requests(small: Loaded, large: Loaded, hours: int, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """Time the GETs of a real service over each database."""
    found = []
    with ExitStack() as stack:
        services = []
        for one in (small, large):
            settings = {"FLOWCAST_DATABASE_URL": one.history.url, "FLOWCAST_MODEL_STORE": str(folder / "models")}
            settings["FLOWCAST_CLOCK"] = (
                "feed"  # so that loading may take long, and counts may be posted for future slots
            )
            services.append(stack.enter_context(running(["app", "serve", "--no-worker"], settings, "/readyz", folder)))
        # Opened after both have started, because a connection without a request is closed after some seconds.
        connections = [stack.enter_context(closing(Connection("127.0.0.1", service.port))) for service in services]

        def send(connection: Connection, message: bytes) -> None:
            status, body = connection.send(message)
            if status != 200:
                raise RuntimeError(f"{message!r}: {status}: {body[:200]!r}")

        def get(connection: Connection, path: str, n: int) -> None:
            link = small.links[n % REQUESTED_LINKS % len(small.links)].link_id
            send(connection, request("GET", path.format(link=link), KEY))

        def post(connection: Connection, links: Sequence[LinkInfo], n: int) -> None:
            slot = datetime.fromtimestamp(small.history.last + SLOT * (n + WARM_UP + 1), UTC).isoformat()
            counts = [{"link_id": link.link_id, "slot_start": slot, "count": 50} for link in links]
            send(connection, request("POST", "/v1/counts", KEY, json.dumps({"counts": counts}).encode()))

        def measure(name: str, send_request: Callable[..., None], argument: object) -> None:
            with notes.status(name):
                request_small, request_large = (
                    partial(send_request, connection, argument) for connection in connections
                )
                ms = time_alternately(request_small, request_large, seconds)
            found.append({"read": name, "small_ms": ms[0], "large_ms": ms[1]})

        for name, path in requests(hours, reaches_far(small)).items():
            measure(name, get, path)
        measure("POST a count of one link", post, small.links[:1])
        measure("POST a slot of all other links", post, small.links[1:])
    if not reaches_far(small):
        notes.print(
            f"health and accuracy of a link are left out: they read {FAR_DAYS} days, and the small history has fewer"
        )
    return found


def load(history: History) -> Loaded:
    """Fill a database, with a progress bar."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=notes, transient=True) as progress:
        bar = progress.add_task("loading", total=2 * history.rows)
        engine = history.load(lambda n: progress.update(bar, advance=n))
    with reading(engine) as session:
        return Loaded(history, engine, all_links(session))


def measure(
    rows: int, fraction: float, links: int, seconds: float, kind: str = "postgresql", server: str | None = None
) -> dict[str, Any]:
    """Load both databases and time everything."""
    last = newest_slot()
    sizes = max(links * 96, int(rows * fraction)), rows
    with (
        databases(kind, server, ("flowcast_history_small", "flowcast_history_large")) as urls,
        tempfile.TemporaryDirectory(prefix="flowcast-history-") as folder,
    ):
        small, large = (load(History(url, links, n, last)) for url, n in zip(urls, sizes, strict=True))
        hours = max(1, min(24, small.history.forecast_slots // 4))
        sizes_on_disk = [one.history.size(one.engine) for one in (small, large)]
        found = time_reads(small, large, hours, seconds)
        found += time_requests(small, large, hours, seconds, Path(folder))
        for one in (small, large):
            one.engine.dispose()
    for row in found:
        row["ratio"] = row["large_ms"] / row["small_ms"]
    return {
        "links": links,
        "small": sizes_on_disk[0],
        "large": sizes_on_disk[1],
        "reads": found,
        "worst": max(r["ratio"] for r in found),
    }


def show(found: dict[str, Any]) -> None:
    """Print the times side by side."""
    sizes = [f"{one['rows']:,} counts,\n{one['months']} months" for one in (found["small"], found["large"])]
    disk = f"{found['small']['size']} and {found['large']['size']} on disk"
    title = f"{found['links']:,} links, with as many forecasts as counts; {disk}"
    table = Table("read", *sizes, "ratio", "months scanned", "planning", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in found["reads"]:
        times = [f"{row['small_ms']:.2f} ms", f"{row['large_ms']:.2f} ms", f"{row['ratio']:.2f}"]
        plans = ["", ""]
        if row.get("large") is not None:
            small_reads, large_reads = row["small"], row["large"]
            plans[0] = f"{small_reads['months']} : {large_reads['months']}"
            plans[1] = f"{small_reads['planning_ms']:.2f} : {large_reads['planning_ms']:.2f} ms"
        table.add_row(row["read"], *times, *plans)
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    console.print(table)
    verdict = "holds" if found["worst"] <= BAR else "does not hold"
    console.print(f"the largest ratio is {found['worst']:.2f}; the limit of {BAR} {verdict}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000, help="counts, and as many forecasts (20000000)")
    parser.add_argument("--fraction", type=float, default=0.01, help="share of them in the small history (0.01)")
    parser.add_argument("--links", type=int, default=100, help="number of links (100)")
    parser.add_argument("--seconds-a-query", type=float, default=3.0, help="least time for each read (3)")
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql", help="kind of database")
    parser.add_argument("--url", help="PostgreSQL to create databases on (default: a temporary server)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if not 0 < options.fraction < 1 or options.rows * options.fraction < options.links * 96:
        parser.error("--rows times --fraction must be at least 96 times --links, a day of counts")
    if options.url and options.database == "sqlite":
        parser.error("--url is for PostgreSQL; leave it out with --database sqlite")
    found = measure(
        options.rows, options.fraction, options.links, options.seconds_a_query, options.database, options.url
    )
    print(json.dumps(found, indent=2)) if options.json else show(found)
    return 0 if found["worst"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
