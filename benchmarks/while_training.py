"""Response times while the worker trains, and the duration of a run over REST compared with ``flowcast train``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app.core.database import open_database
from app.core.schema import upgrade_schema
from app.demo.city import sample_city
from benchmarks.http_load import Connection, request
from benchmarks.running_service import KEY, Running, running
from tests.support.stored import store_city

DAYS = 25
IDLE_SECONDS = 10.0
POLL_SECONDS = 1.0  # between requests for the run's state
PAUSE_SECONDS = 1.0  # between rounds, in each of which all links are read once


def latencies(service: Running, link_ids: list[str], stop: threading.Event) -> list[float]:
    """Read every link's forecast in rounds until ``stop`` is set; return the seconds of each request."""
    connection = Connection("127.0.0.1", service.port)
    requests = [request("GET", f"/v1/links/{link_id}/forecast", KEY) for link_id in link_ids]
    durations = []
    while not stop.is_set():
        for message in requests:
            started = time.perf_counter()
            status, body = connection.send(message)
            durations.append(time.perf_counter() - started)
            if status != 200:
                raise RuntimeError(f"{status}: {body[:200]!r}")
        stop.wait(PAUSE_SECONDS)
    connection.close()
    return durations


def measure_idle(service: Running, link_ids: list[str]) -> list[float]:
    """Time forecasts without other load."""
    stop = threading.Event()
    timer = threading.Timer(IDLE_SECONDS, stop.set)
    timer.start()
    return latencies(service, link_ids, stop)


def retrain(service: Running, link_ids: list[str]) -> tuple[float, list[float]]:
    """Retrain every link over REST while forecasts are read; return the seconds of the run and of each read."""
    stop, durations = threading.Event(), []
    reader = threading.Thread(target=lambda: durations.extend(latencies(service, link_ids, stop)))
    reader.start()
    started = time.perf_counter()
    try:
        body = json.dumps({"links": "all", "algorithm": "KR_SML", "activate": "always"}).encode()
        status, answer = service.request("POST", "/v1/admin/retrain", body)
        if status != 202:
            raise RuntimeError(f"{status}: {answer[:300]!r}")
        path = f"/v1/admin/retrain/{json.loads(answer)['run_id']}"
        while (run := json.loads(service.request("GET", path)[1]))["state"] in ("queued", "running"):
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - started
        if run["state"] != "succeeded" or run["progress"]["done"] != len(link_ids):
            raise RuntimeError(json.dumps(run["progress"]))
        return seconds, durations
    finally:
        stop.set()
        reader.join()


def train_by_command(settings: dict[str, str], folder: Path) -> float:
    """Time ``flowcast train`` on the same counts."""
    command = [sys.executable, "-m", "app", "train", "--from-database", "--algorithm", "KR_SML"]
    command += ["--output", str(folder / "trained"), "--json"]
    started = time.perf_counter()
    subprocess.run(command, env=os.environ | settings, check=True, capture_output=True)
    return time.perf_counter() - started


def measure_while_training(links: int) -> dict[str, Any]:
    """Run everything on the sample city."""
    with tempfile.TemporaryDirectory(prefix="flowcast-training-") as name:
        folder = Path(name)
        settings = {
            "FLOWCAST_DATABASE_URL": f"sqlite:///{folder / 'flowcast.db'}",
            "FLOWCAST_MODEL_STORE": str(folder / "models"),
            "FLOWCAST_STALE_AFTER_MINUTES": "100000000",  # the city's days are in the past
        }
        link_ids = fill(settings["FLOWCAST_DATABASE_URL"], links)
        by_command = train_by_command(settings, folder)
        with running(["app", "serve"], settings, "/readyz", folder) as service:
            for link_id in link_ids:  # so that forecasts are computed before they are timed
                service.request("GET", f"/v1/links/{link_id}/forecast")
            idle = measure_idle(service, link_ids)
            over_rest, busy = retrain(service, link_ids)
    return {
        "links": links,
        "idle_p95_ms": 1000 * float(np.quantile(idle, 0.95)),
        "training_p95_ms": 1000 * float(np.quantile(busy, 0.95)),
        "p95_ratio": float(np.quantile(busy, 0.95) / np.quantile(idle, 0.95)),
        "answers_while_training": len(busy),
        "train_seconds": by_command,
        "retrain_seconds": over_rest,
        "retrain_ratio": over_rest / by_command,
    }


def fill(url: str, links: int, days: int = DAYS) -> list[str]:
    """Store a sample city in a new database and return the ids of its links."""
    city, engine = sample_city(links=links, days=days), open_database(url)
    upgrade_schema(engine)
    store_city(engine, city)
    engine.dispose()
    return list(city.counts)


def show(found: dict[str, Any]) -> None:
    """Print the measured values and their limits."""
    table = Table("what", "measured", "limit", title=f"{found['links']} links of the sample city, {DAYS} days")
    idle, busy = found["idle_p95_ms"], found["training_p95_ms"]
    table.add_row(
        "p95 of GET …/forecast while training : idle",
        f"{found['p95_ratio']:.2f} ({busy:.2f} ms : {idle:.2f} ms, {found['answers_while_training']:,} answers)",
        "3",
    )
    table.add_row(
        "retrain over REST : flowcast train",
        f"{found['retrain_ratio']:.2f} ({found['retrain_seconds']:.1f} s : {found['train_seconds']:.1f} s)",
        "1.2",
    )
    Console(width=None if sys.stdout.isatty() else 130, highlight=False).print(table)
