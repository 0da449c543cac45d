"""Measure how fast the service serves, as ratios to baselines in the same run.

- ``GET /v1/links/{link_id}/forecast`` against an empty FastAPI route that returns a body of that
  size behind the same key check, one uvicorn worker each, measured alternately; both without a line
  of the log for each request, and then the service with it;
- ``GET /v1/forecasts`` for 1,000 links;
- ``POST /v1/counts`` of 10,000 new counts (100 links x 100 slots) against a bare
  ``INSERT ... ON CONFLICT`` of as many rows with the driver's executemany, on SQLite and on PostgreSQL,
  without forecasts and with those of 100 links;
- the memory of two workers with 1,000 models loaded;
- the key check itself.

With ``--network`` the models are of one network, and a POST of a slot of all its links is timed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import is_sqlite
from app.core.partitions import ensure_months
from app.keys.cache import ApiKeyCache
from app.settings import Settings
from benchmarks import while_training
from benchmarks.empty_service import BODY_BYTES
from benchmarks.http_load import Connection, request, throughput
from benchmarks.model_city import ModelCity
from benchmarks.prepared_city import postgresql, prepared
from benchmarks.running_service import KEY, Running, running

ROUNDS = 5
SLOTS = 100  # of each link in a batch
POSTING_LINKS = 100

notes = Console(stderr=True, highlight=False)


def forecast_ratio(service: Running, empty: Running, link_ids: list[str], seconds: float) -> dict[str, Any]:
    """Compare one link's forecast with the empty route, alternately."""
    requests = [request("GET", f"/v1/links/{link_id}/forecast", KEY) for link_id in link_ids]
    nothing = [request("GET", "/v1/empty", KEY)]
    rates: dict[str, list[float]] = {"forecast": [], "empty": []}
    for _ in range(ROUNDS):
        rates["empty"].append(throughput("127.0.0.1", empty.port, nothing, seconds))
        rates["forecast"].append(throughput("127.0.0.1", service.port, requests, seconds))
    forecast, plain = statistics.median(rates["forecast"]), statistics.median(rates["empty"])
    return {"forecasts_a_second": forecast, "empty_a_second": plain, "ratio": forecast / plain}


def network_latency(service: Running, links: int) -> dict[str, Any]:
    """Time the call for all links: the first one, and the median of the next."""
    times = []
    for _ in range(11):
        started = time.perf_counter()
        status, body = service.request("GET", "/v1/forecasts")
        times.append(1000 * (time.perf_counter() - started))
        if status != 200 or body.count(b'"link_id"') != links:
            raise RuntimeError(f"{status}: {body[:200]!r}")
    return {
        "links": links,
        "first_ms": times[0],
        "median_ms": statistics.median(times[1:]),
    }


def ingest_ratios(service: Running, engine: Engine, city: ModelCity, posted: int = 0) -> dict[str, Any]:
    """Compare posting counts with a bare upsert, without forecasts and with them, after ``posted`` slots.

    No forecast is issued for counts of slots before a link's newest.
    """
    first = SLOTS + posted
    issuing = _ingest_ratio(service, engine, city, first + 2 * ROUNDS * SLOTS, POSTING_LINKS)
    return {"storing": _ingest_ratio(service, engine, city, first, 0), "issuing": issuing}


def _ingest_ratio(service: Running, engine: Engine, city: ModelCity, first: int, issued: int) -> dict[str, Any]:
    """Compare posting counts from slot ``first`` on with a bare upsert of as many rows into that table, alternately."""
    connection = Connection("127.0.0.1", service.port)
    ours, bare = [], []
    for begin in range(first, first + 2 * ROUNDS * SLOTS, 2 * SLOTS):
        body = city.batch(POSTING_LINKS, first=begin, n=SLOTS)
        started = time.perf_counter()
        status, answer = connection.send(request("POST", "/v1/counts", KEY, body))
        ours.append(time.perf_counter() - started)
        report = json.loads(answer)
        if status != 200 or report["stored"] != POSTING_LINKS * SLOTS or report["forecasts_issued"] != issued:
            raise RuntimeError(f"{status}: {answer[:300]!r}")
        bare.append(bare_upsert(engine, city.rows(engine, POSTING_LINKS, first=begin + SLOTS, n=SLOTS)))
    connection.close()
    mine, plain = statistics.median(ours), statistics.median(bare)
    return {"post_ms": 1000 * mine, "bare_ms": 1000 * plain, "ratio": plain / mine}


def post_a_slot(service: Running, city: ModelCity) -> dict[str, Any]:
    """Time the POST of one slot of every link, including the forecasts that are issued."""
    times = []
    connection = Connection("127.0.0.1", service.port)
    for i in range(ROUNDS):
        body = city.batch(len(city.link_ids), first=SLOTS + i, n=1)
        started = time.perf_counter()
        status, answer = connection.send(request("POST", "/v1/counts", KEY, body))
        times.append(1000 * (time.perf_counter() - started))
        if status != 200 or json.loads(answer)["forecasts_issued"] != len(city.link_ids):
            raise RuntimeError(f"{status}: {answer[:300]!r}")
    connection.close()
    return {"first_ms": times[0], "median_ms": statistics.median(times[1:])}


def bare_upsert(engine: Engine, rows: list[tuple[int, ...]]) -> float:
    """Time the driver's executemany, with its commit."""
    mark = "?" if is_sqlite(engine) else "%s"
    statement = (
        f"INSERT INTO counts (link_key, slot_start, count, quality) VALUES ({', '.join([mark] * 4)}) "
        "ON CONFLICT (link_key, slot_start) DO UPDATE SET count = excluded.count, quality = excluded.quality"
    )
    with Session(engine) as session, session.begin():
        ensure_months(session, "counts", {row[1] for row in rows})
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        started = time.perf_counter()
        if is_sqlite(engine):
            cursor.execute("BEGIN IMMEDIATE")
        cursor.executemany(statement, rows)
        if is_sqlite(engine):
            cursor.execute("COMMIT")
        else:
            raw.commit()
        return time.perf_counter() - started
    finally:
        raw.close()


def loaded_memory(service: Running, city: ModelCity) -> dict[str, Any]:
    """Load every model into both workers, and return their memory."""
    empty, _ = service.megabytes()
    requests = [request("GET", f"/v1/links/{link_id}/forecast?explain=true", KEY) for link_id in city.link_ids]
    for _ in range(3):  # the kernel decides which worker accepts a connection
        for begin in range(8):
            connections = [Connection("127.0.0.1", service.port) for _ in range(2)]
            for n, message in enumerate(requests[begin::8]):
                for connection in connections:
                    status, body = connection.send(message)
                    if status != 200 or b'"explanation":{' not in body:
                        raise RuntimeError(f"{n}: {status}: {body[:300]!r}")
            for connection in connections:
                connection.close()
    workers, supervisor = service.megabytes()
    return {
        "models": len(requests),
        "megabytes_before": empty,
        "megabytes": workers,
        "supervisor_megabytes": supervisor,
    }


def key_check(engine: Engine) -> dict[str, Any]:
    """Time the check of a cached key, which every request makes."""
    keys = ApiKeyCache(engine, Settings(admin_key=KEY))
    n = 20_000

    async def check() -> float:
        started = time.perf_counter()
        for _ in range(n):
            (await keys.identify(KEY, "127.0.0.1")).require_scope("read")
        return (time.perf_counter() - started) / n

    return {"microseconds": 1e6 * asyncio.run(check())}


def measure(links: int, seconds: float, *, network: bool = False) -> dict[str, Any]:
    """Run everything."""
    found: dict[str, Any] = {}
    serve = ["app", "serve", "--no-worker"]
    with tempfile.TemporaryDirectory(prefix="flowcast-serving-") as name:
        folder = Path(name)
        with prepared(f"sqlite:///{folder / 'flowcast.db'}", folder, links, notes, network=network) as (
            engine,
            city,
            settings,
        ):
            found["key_check"] = key_check(engine)
            with running(serve, settings, "/readyz", folder) as service:
                found["network"] = network_latency(service, links)
                size = len(service.request("GET", f"/v1/links/{city.link_ids[0]}/forecast")[1])
                empty = ["uvicorn", "--factory", "benchmarks.empty_service:create_empty_app", "--no-access-log"]
                quiet = settings | {"FLOWCAST_LOG_LEVEL": "warning"}
                with (
                    running(empty, settings | {BODY_BYTES: str(size)}, "/v1/empty", folder) as baseline,
                    running(serve, quiet, "/readyz", folder) as without_log,
                ):
                    found["forecast"] = forecast_ratio(without_log, baseline, city.link_ids[:100], seconds)
                    found["forecast_logged"] = forecast_ratio(service, baseline, city.link_ids[:100], seconds)
                if network:
                    found["slot"] = post_a_slot(service, city)
                found["ingest_sqlite"] = ingest_ratios(service, engine, city, ROUNDS if network else 0)
            with running([*serve, "--workers", "2"], settings, "/readyz", folder) as service:
                found["memory"] = loaded_memory(service, city)
        with (
            postgresql() as url,
            prepared(url, folder / "pg", POSTING_LINKS, notes, network=network) as (engine, city, settings),
            running(serve, settings, "/readyz", folder) as service,
        ):
            found["ingest_postgresql"] = ingest_ratios(service, engine, city)
    return found


def show(found: dict[str, Any]) -> None:
    """Print the measured values and their limits."""
    table = Table("what", "measured", "limit", title="the service compared with its baselines")
    network, memory = found["network"], found["memory"]
    table.add_row("key check", f"{found['key_check']['microseconds']:.1f} us", "100 us")
    for name, what, bar in (("forecast", "", "0.50, aim 0.75"), ("forecast_logged", ", with lines of the log", "")):
        forecast = found[name]
        rates = f"{forecast['forecasts_a_second']:,.0f} : {forecast['empty_a_second']:,.0f} a second"
        table.add_row(f"GET …/forecast{what} : empty FastAPI route", f"{forecast['ratio']:.2f} ({rates})", bar)
    table.add_row(
        f"GET /v1/forecasts, {network['links']:,} links",
        f"{network['median_ms']:.0f} ms, the first {network['first_ms']:.0f} ms",
        "150 ms",
    )
    if (slot := found.get("slot")) is not None:
        figures = f"{slot['median_ms']:.0f} ms, the first {slot['first_ms']:.0f} ms"
        table.add_row(
            f"POST /v1/counts of a slot of {network['links']:,} links of a network", figures, "300 ms to issue"
        )
    for database in ("sqlite", "postgresql"):
        for what, bar in (("storing", "0.30"), ("issuing", "")):
            ingest = found[f"ingest_{database}"][what]
            figures = f"{ingest['ratio']:.2f} ({ingest['post_ms']:.0f} ms : {ingest['bare_ms']:.0f} ms)"
            more = f" and {POSTING_LINKS} forecasts" if what == "issuing" else ""
            table.add_row(f"POST /v1/counts of 10,000{more} : bare upsert, {database}", figures, bar)
    table.add_row(
        f"memory of two workers, {memory['models']:,} models loaded",
        f"{memory['megabytes']:.0f} MB PSS ({memory['megabytes_before']:.0f} MB without; "
        f"the supervisor {memory['supervisor_megabytes']:.0f} MB)",
        "600 MB" if "slot" in found else "400 MB",
    )
    Console(width=None if sys.stdout.isatty() else 130, highlight=False).print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__.split("\n")[0])
    parser.add_argument("--links", type=int, default=1000, help="links with a trained model each (1000)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each round of requests (2)")
    parser.add_argument("--network", action="store_true", help="models of one network instead of models on lags")
    parser.add_argument(
        "--while-training", action="store_true", help="measure response times while the worker trains instead"
    )
    parser.add_argument("--training-links", type=int, default=100, help="links to train with --while-training (100)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if options.while_training:
        found = while_training.measure_while_training(options.training_links)
        print(json.dumps(found, indent=2)) if options.json else while_training.show(found)
        return 0
    found = measure(max(options.links, POSTING_LINKS), options.seconds, network=options.network)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
