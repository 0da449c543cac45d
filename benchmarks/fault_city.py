"""A database, a service of two processes and a worker, which can be killed and started again, and their links."""

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
from tests.support.postgresql import PostgreSQL, own_postgresql, query_rows
from tests.support.services import free_port

DAYS = 12
FEEDS = 3
READY_SECONDS = 120.0
QUICK = {"algorithm": "KR", "parameters": {"lags": 4, "n_neighbors": 4, "held_out_days": 4}}


class FaultCity:
    """The processes of an installation, which can be killed and started again."""

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
        """Start the service or the worker in its own process group."""
        serve = ["serve", "--port", str(self.port), "--workers", "2", "--no-worker"]
        command = [sys.executable, "-m", "app", *(serve if name == "service" else ["worker"])]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def pid(self, name: str) -> int:
        """Return the process id of the service or the worker."""
        return self._processes[name].pid

    def keep_alive(self) -> None:
        """Start ended processes again, such as a worker that found the database unreachable at its start."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self.start(name)

    def kill(self, name: str) -> None:
        """Kill the service or the worker with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop the service or the worker with all its processes during a block, so that their work stays under way."""
        group = self._processes[name].pid
        try:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGSTOP)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

    def serving(self) -> list[int]:
        """Return the ids of the serving processes, without their supervisor."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._processes["service"].pid).children()
            return [one.pid for one in children if "resource_tracker" not in " ".join(one.cmdline())]
        return []

    def server_of(self, port: int) -> int | None:
        """Return the id of the process at the other end of a client's connection."""
        for pid in self.serving():
            with contextlib.suppress(psutil.Error):
                if any(one.raddr and one.raddr.port == port for one in psutil.Process(pid).net_connections("tcp")):
                    return pid
        return None

    def rows(self, question: LiteralString, *given: object) -> list[tuple[Any, ...]]:
        """Query the database itself, after waiting for it if it is restarting."""
        return query_rows(self.url, question, *given)

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one request to the service; status 0 means no response."""
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

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Wait for a condition, and start ended processes again meanwhile."""
        until = time.monotonic() + seconds
        while not condition():
            self.keep_alive()
            if time.monotonic() > until:
                logs = "".join(log.read_text()[-1500:] for log in self.folder.glob("*.log"))
                raise RuntimeError(f"{what}: not within {seconds:.0f} s: {logs}")
            time.sleep(0.02)

    def ready(self) -> bool:
        """Return whether both serving processes run and the service is ready."""
        return len(self.serving()) == 2 and self.request("GET", "/readyz")[0] == 200

    def open_runs(self) -> int:
        """Return the number of runs that have not ended."""
        return int(self.rows("SELECT count(*) FROM retrain_runs WHERE state IN ('queued', 'running')")[0][0])

    def end(self) -> None:
        """Kill all processes."""
        for name in self._processes:
            self.kill(name)


@contextlib.contextmanager
def fault_city(
    folder: Path, feeds: Sequence[str], swapped: Sequence[str], activating: Sequence[str], *, fsync: bool
) -> Iterator[FaultCity]:
    """Start everything and store links: those of feeds are empty, the others have counts and two model versions."""
    with own_postgresql(fsync=fsync) as database:
        city = FaultCity(folder, database)
        try:
            city.start("service")
            city.wait_for("the service", city.ready)
            city.start("worker")
            trained = [*swapped, *activating]
            counts = sample_city(links=len(trained), days=DAYS, seed=11)
            for link in [*feeds, *trained]:
                _require_status(201, city.request("PUT", f"/v1/links/{link}", {"zone": counts.zone}))
            rows = [
                {"link_id": link, "slot_start": counts.grid.start(counts.first_slot + i).isoformat(), "count": int(n)}
                for link, series in zip(trained, counts.counts.values(), strict=True)
                for i, n in enumerate(series)
                if n == n
            ]
            _require_status(200, city.request("POST", "/v1/counts", {"counts": rows}))
            for n_neighbors in (4, 5):
                body = QUICK | {"parameters": {**QUICK["parameters"], "n_neighbors": n_neighbors}}  # type: ignore[dict-item]
                body |= {"links": trained, "activate": "always"}
                _require_status(202, city.request("POST", "/v1/admin/retrain", body))
                city.wait_for("two versions of each model", lambda: city.open_runs() == 0)
            yield city
        finally:
            city.end()


def _require_status(status: int, answer: tuple[int, Any]) -> None:
    if answer[0] != status:
        raise RuntimeError(f"expected {status}, got {answer}")
