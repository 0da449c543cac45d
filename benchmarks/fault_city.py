"""A database, a service of two processes, a worker and the links they serve, each to be killed and started again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString

import psutil

from app.demo.city import sample_city
from benchmarks.running_service import KEY
from tests.support.postgresql import PostgreSQL, asked, own_postgresql
from tests.support.services import free_port

DAYS = 12
FEEDS = 3
READY_SECONDS = 120.0
QUICK = {"algorithm": "KR", "parameters": {"lags": 4, "n_neighbors": 4, "held_out_days": 4}}


class FaultCity:
    """What is killed, and what it takes to get it going again."""

    def __init__(self, folder: Path, database: PostgreSQL) -> None:
        self.folder, self.database, self.port = folder, database, free_port()
        self.url = database.create("faults")
        self.models = folder / "models"
        self._environment = os.environ | {
            "FLOWCAST_DATABASE_URL": self.url,
            "FLOWCAST_MODEL_STORE": str(self.models),
            "FLOWCAST_CLOCK": "feed",
            "FLOWCAST_ADMIN_KEY": KEY,
            "FLOWCAST_RATE_LIMIT": "0",
            "FLOWCAST_RETRAIN_JOBS": "1",
            "FLOWCAST_LOG_LEVEL": "warning",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start the service or the worker, in a group of processes of its own."""
        serve = ["serve", "--port", str(self.port), "--workers", "2", "--no-worker"]
        command = [sys.executable, "-m", "app", *(serve if name == "service" else ["worker"])]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def pid(self, name: str) -> int:
        """Give the process of the service or the worker that was started."""
        return self._processes[name].pid

    def keep_alive(self) -> None:
        """Start again what has ended, as a supervisor would; a worker ends where there is no database to begin with."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self.start(name)

    def kill(self, name: str) -> None:
        """Kill the service or the worker with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait()

    def serving(self) -> list[int]:
        """Give the processes that serve, not the one that looks after them."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._processes["service"].pid).children()
            return [one.pid for one in children if "resource_tracker" not in " ".join(one.cmdline())]
        return []

    def server_of(self, port: int) -> int | None:
        """Find the process that has the other end of a client's connection."""
        for pid in self.serving():
            with contextlib.suppress(psutil.Error):
                if any(one.raddr and one.raddr.port == port for one in psutil.Process(pid).net_connections("tcp")):
                    return pid
        return None

    def rows(self, question: LiteralString, *given: object) -> list[tuple[Any, ...]]:
        """Ask the database itself; it may be on its way back."""
        return asked(self.url, question, *given)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the service once; status 0 where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"X-API-Key": KEY, "Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Wait until something holds, and keep everything alive meanwhile."""
        until = time.monotonic() + seconds
        while not holds():
            self.keep_alive()
            if time.monotonic() > until:
                logs = "".join(log.read_text()[-1500:] for log in self.folder.glob("*.log"))
                raise RuntimeError(f"waited {seconds:.0f} s in vain for {what}: {logs}")
            time.sleep(0.02)

    def ready(self) -> bool:
        """Tell whether both serving processes are there and answer."""
        return len(self.serving()) == 2 and self.ask("GET", "/readyz")[0] == 200

    def open_runs(self) -> int:
        """Count the runs that are not over."""
        return int(self.rows("SELECT count(*) FROM retrain_runs WHERE state IN ('queued', 'running')")[0][0])

    def end(self) -> None:
        """End everything that was started here."""
        for name in self._processes:
            self.kill(name)


@contextlib.contextmanager
def fault_city(
    folder: Path, feeds: Sequence[str], swapped: Sequence[str], activating: Sequence[str], *, fsync: bool
) -> Iterator[FaultCity]:
    """Start everything; links for feeds are empty, the others have counts and two versions each."""
    with own_postgresql(fsync=fsync) as database:
        city = FaultCity(folder, database)
        try:
            city.start("service")
            city.wait_for("the service", city.ready)
            city.start("worker")
            trained = [*swapped, *activating]
            counts = sample_city(links=len(trained), days=DAYS, seed=11)
            for link in [*feeds, *trained]:
                _expect(201, city.ask("PUT", f"/v1/links/{link}", {"zone": counts.zone}))
            rows = [
                {"link_id": link, "slot_start": counts.grid.start(counts.first_slot + i).isoformat(), "count": int(n)}
                for link, series in zip(trained, counts.counts.values(), strict=True)
                for i, n in enumerate(series)
                if n == n
            ]
            _expect(200, city.ask("POST", "/v1/counts", {"counts": rows}))
            for neighbours in (4, 5):
                wish = QUICK | {"parameters": {**QUICK["parameters"], "n_neighbors": neighbours}}  # type: ignore[dict-item]
                wish |= {"links": trained, "activate": "always"}
                _expect(202, city.ask("POST", "/v1/admin/retrain", wish))
                city.wait_for("two versions of each model", lambda: city.open_runs() == 0)
            yield city
        finally:
            city.end()


def _expect(status: int, answer: tuple[int, Any]) -> None:
    if answer[0] != status:
        raise RuntimeError(f"expected {status}, got {answer}")
