"""Services and workers as real processes, as a user would start them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.waiting import TRAINING_SECONDS, WAIT_SECONDS, wait_until

ADMIN_KEY = "an-admin-key-for-tests-only"
FLOWCAST = (sys.executable, "-m", "app")
PORTS = range(20_000, 32_000)  # below those of outgoing connections
ANSWER_SECONDS = 120.0  # longer than any response takes, also on a busy machine


def free_port() -> int:
    """Return a port that nothing listens on.

    The kernel's choice is not used, because it may assign the same port to an outgoing connection before the caller
    listens.
    """
    while True:
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port := secrets.choice(PORTS)))
            return port


def listens(port: int) -> bool:
    """Return whether a process accepts connections on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


class Service:
    """A running ``flowcast serve``."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self.url = f"http://127.0.0.1:{port}"

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request with the admin key; return the status and the body."""
        status, response, _ = self.request_as(ADMIN_KEY, method, path, body)
        return status, response

    def request_as(self, key: str, method: str, path: str, body: Any = None, **also: str) -> tuple[int, Any, Any]:
        """Send a request with a key and other headers; return the status, the body and the headers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-API-Key": key, "Content-Type": "application/json", **also}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
                text = response.read().decode()
                is_csv = response.headers.get_content_type() == "text/csv"
                return response.status, text if is_csv else json.loads(text or "null"), response.headers
        except urllib.error.HTTPError as problem:
            return problem.code, json.loads(problem.read() or b"null"), problem.headers

    def counts(self, link_id: str) -> dict[str, int]:
        """Return the stored counts of a link by slot, of the ten days from 1 September 2025."""
        path = f"/v1/links/{link_id}/counts?from={slot_start(0)}&to={slot_start(960)}&limit=10000"
        found = self.request("GET", path)[1]["counts"]
        return {count["slot_start"]: count["count"] for count in found if count["count"] is not None}

    def metrics(self) -> str:
        """Return the metrics of the service."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=ANSWER_SECONDS) as response:
            return str(response.read().decode())

    def stream(self, path: str, **headers: str) -> Any:
        """Open a stream of events."""
        request = urllib.request.Request(f"{self.url}{path}", headers={"X-API-Key": ADMIN_KEY, **headers})
        return urllib.request.urlopen(request, timeout=ANSWER_SECONDS)

    def run_when(self, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return a retrain run as soon as it meets a condition.

        The run's event stream is read, because polling takes as much CPU time as training.
        """
        run: dict[str, Any] = {}
        deadline = time.monotonic() + TRAINING_SECONDS
        with self.stream(path, Accept="text/event-stream") as lines:
            for line in lines:  # at least one every 15 seconds
                if line.startswith(b"data: ") and condition(run := json.loads(line[6:])):
                    return run
                if time.monotonic() > deadline:
                    break
        raise AssertionError(f"the run never met the condition; the last was {run}")

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=WAIT_SECONDS)


def slot_start(i: int) -> str:
    """Return the start of the i-th slot of 15 minutes from 1 September 2025."""
    return f"2025-09-{1 + i // 96:02}T{i % 96 // 4:02}:{i % 4 * 15:02}:00Z"


def environment(database_url: str, folder: Path, **settings: str) -> dict[str, str]:
    """Return the environment of a process that works on a database."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLOWCAST_")}
    return inherited | {
        "FLOWCAST_DATABASE_URL": database_url,
        "FLOWCAST_MODEL_STORE": str(folder / "models"),
        "FLOWCAST_ADMIN_KEY": ADMIN_KEY,
        "FLOWCAST_CLOCK": "feed",
        **settings,
    }


@contextmanager
def running_service(
    database_url: str,
    folder: Path,
    *arguments: str,
    port: int = 0,
    worker: bool = False,
    program: Sequence[str] = FLOWCAST,
    **settings: str,
) -> Iterator[Service]:
    """Start ``flowcast serve`` and wait until it is ready; stop it at the end."""
    port = port or free_port()
    log = folder / f"service-{port}.log"
    beside = "--worker" if worker else "--no-worker"
    command = [*program, "serve", "--port", str(port), beside, *arguments]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, env=environment(database_url, folder, **settings), stdout=out, stderr=subprocess.STDOUT
        )
    service = Service(process, port, log)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            return service.request("GET", "/readyz")[0] == 200
        return False

    try:
        wait_until(is_ready, explain=log.read_text)
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=WAIT_SECONDS)


def start_worker(
    database_url: str, folder: Path, program: Sequence[str] = FLOWCAST, **settings: str
) -> subprocess.Popen[bytes]:
    """Start ``flowcast worker``, with its log in ``worker.log`` of the folder."""
    settings = {"FLOWCAST_RETRAIN_JOBS": "1", **settings}
    with (folder / "worker.log").open("ab") as log:
        # A new session, as beside a service, because the kernel divides CPU time by session.
        return subprocess.Popen(
            [*program, "worker"],
            env=environment(database_url, folder, **settings),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@contextmanager
def running_worker(
    database_url: str, folder: Path, program: Sequence[str] = FLOWCAST, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``flowcast worker``; stop it at the end."""
    worker = start_worker(database_url, folder, program, **settings)
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGCONT)
        worker.terminate()
        worker.wait(timeout=WAIT_SECONDS)


def run_flowcast(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Flowcast in a new process."""
    return subprocess.run(
        [*FLOWCAST, *map(str, arguments)], env=os.environ | environment, capture_output=True, text=True, check=False
    )
