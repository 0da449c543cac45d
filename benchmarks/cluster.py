"""Compare retrain runs on a Dask cluster of two workers with the same runs in two local processes.

Each run is complete: counts are read from the database, links are trained and artifacts are registered.
Links are divided into several runs, and each run is executed alternately in both ways, so that load from
elsewhere on the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sqlalchemy import Engine

from app.core.database import open_database, reading, writing
from app.links.queries import links_by_id
from app.settings import Settings
from app.training.queries import run_with, tally
from app.training.request import request_run
from app.worker.worker import Worker
from benchmarks.while_training import fill
from tests.support.dask_cluster import DaskCluster

WORKERS = 2
LINKS_PER_RUN = 20
WARM_UP = 4  # links, so that both have started their processes
BAR = 1.25


class Side:
    """One of the two ways to execute runs, and the seconds that it took."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name, self.seconds = name, 0.0
        self._engine: Engine = open_database(settings.database_url)
        self._worker = Worker(self._engine, settings)

    def retrain(self, link_ids: list[str]) -> float:
        """Execute a run over some links and return its duration in seconds."""
        with writing(self._engine) as session:
            links = list(links_by_id(session, link_ids).values())
            run, _ = request_run(session, links, "KR_SML", {}, activate="never", requested_by="benchmark")
        started = time.perf_counter()
        self._worker.work_once()
        seconds = time.perf_counter() - started
        with reading(self._engine) as session:
            ended, states = run_with(session, run.id), tally(session, [run.id])[run.id]
        assert ended is not None
        if states != {"done": len(link_ids)} or ended.detail is not None:
            raise RuntimeError(f"the run {self.name} {ended.state}: {states}, {ended.detail}")
        return seconds

    def close(self) -> None:
        """Close the database connections."""
        self._engine.dispose()


def measure(links: int, days: int, notes: Console) -> dict[str, Any]:
    """Train the links of the sample city alternately in both ways."""
    with tempfile.TemporaryDirectory(prefix="flowcast-cluster-") as name, DaskCluster(Path(name)) as cluster:
        cluster.start_scheduler()
        cluster.start_workers(WORKERS)
        given: dict[str, Any] = {
            "database_url": f"sqlite:///{name}/flowcast.db",
            "model_store": Path(name) / "models",
            "retrain_jobs": WORKERS,
        }
        link_ids = fill(given["database_url"], links, days)
        local = Side("in local processes", Settings(**given))
        remote = Side("on the cluster", Settings(**given, dask_scheduler=cluster.address, dask_away="wait"))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=notes, transient=True) as progress:
            task = progress.add_task("getting ready", total=2 * links)
            for side in (local, remote):
                side.retrain(link_ids[:WARM_UP])
            for turn, begin in enumerate(range(0, links, LINKS_PER_RUN)):
                part = link_ids[begin : begin + LINKS_PER_RUN]
                for side in (local, remote) if turn % 2 == 0 else (remote, local):
                    progress.update(task, description=f"training {side.name}")
                    side.seconds += side.retrain(part)
                    progress.advance(task, len(part))
        for side in (local, remote):
            side.close()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "links": links,
        "days": days,
        "workers": WORKERS,
        "local_seconds": local.seconds,
        "cluster_seconds": remote.seconds,
        "ratio": remote.seconds / local.seconds,
    }


def show(found: dict[str, Any]) -> None:
    """Print both times, their ratio and its limit."""
    title = f"{found['links']} links of the sample city, {found['days']} days"
    table = Table("what", "measured", "limit", title=title)
    table.add_row(f"{found['workers']} local processes", f"{found['local_seconds']:.1f} s", "")
    table.add_row(f"Dask, {found['workers']} workers", f"{found['cluster_seconds']:.1f} s", "")
    table.add_row("Dask : local processes", f"{found['ratio']:.2f}", f"{BAR}")
    Console(width=None if sys.stdout.isatty() else 130, highlight=False).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--links", type=int, default=100, help="links of the sample city (100)")
    parser.add_argument("--days", type=int, default=25, help="days of counts (25)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args()
    for name, least in (("links", 1), ("days", 14)):
        if getattr(options, name) < least:
            parser.error(f"--{name}={getattr(options, name)} is refused; it must be at least {least}")
    found = measure(options.links, options.days, Console(stderr=True))
    print(json.dumps(found, indent=2)) if options.json else show(found)


if __name__ == "__main__":
    main()
