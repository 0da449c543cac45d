"""A service, or the empty baseline, as a real process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.http_load import Connection, request
from tests.support.services import free_port

KEY = "a-key-for-benchmarks-only"
START_SECONDS = 60.0
LOAD_SECONDS = 300.0
LOADED = re.compile(rb"^flowcast_loaded_models(?:\{[^}]*\})? (\S+)", re.MULTILINE)
HELPER_KILOBYTES = 20_000  # multiprocessing's resource tracker is smaller, a worker is not


class Running:
    """A process that listens on a port."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send one request over a new connection."""
        connection = Connection("127.0.0.1", self.port)
        try:
            return connection.send(request(method, path, KEY, body))
        finally:
            connection.close()

    def megabytes(self) -> tuple[float, float]:
        """Return the memory of the serving processes and of the others: sums of proportional set sizes."""
        parent, *others = _family(self.pid)
        serving = [pid for pid in others if _pss_kilobytes(pid) > HELPER_KILOBYTES]
        rest = _pss_kilobytes(parent) + sum(_pss_kilobytes(pid) for pid in others if pid not in serving)
        return sum(_pss_kilobytes(pid) for pid in serving) / 1024, rest / 1024

    def cpu_seconds(self) -> float:
        """Return the user and system time of all its processes so far, including the retrain worker."""
        return sum(_cpu_seconds(pid) for pid in _family(self.pid))

    def wait_for_models(self, n: int) -> None:
        """Wait until its processes have loaded ``n`` models in total."""
        until = time.monotonic() + LOAD_SECONDS
        while (loaded := sum(map(float, LOADED.findall(self.request("GET", "/metrics")[1])))) < n:
            if time.monotonic() > until:
                raise RuntimeError(f"{loaded:.0f} of {n} models were loaded within {LOAD_SECONDS:.0f} s")
            time.sleep(0.5)

    def pss_megabytes(self) -> float:
        """Return the memory of all its processes: the sum of their proportional set sizes."""
        return sum(_pss_kilobytes(pid) for pid in _family(self.pid)) / 1024


@contextmanager
def running(arguments: list[str], settings: Mapping[str, str], ready: str, folder: Path) -> Iterator[Running]:
    """Start a process on a free port, wait until it is ready, and stop it at the end."""
    port = free_port()
    environment = os.environ | dict(settings) | {"FLOWCAST_ADMIN_KEY": KEY, "FLOWCAST_RATE_LIMIT": "0"}
    with (folder / f"log-{port}.txt").open("wb") as log:
        command = [sys.executable, "-m", *arguments, "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            service = Running(process.pid, port)
            _wait(service, process, ready, folder / f"log-{port}.txt")
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    # Linux lists children by thread, and several threads start some.
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for thread in threads for child in thread.read_text().split()]
    return [pid, *(one for child in children for one in _family(int(child)))]


def _pss_kilobytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))


def _cpu_seconds(pid: int) -> float:
    # The number of a process's CPU clock on Linux; /proc has a resolution of hundredths of a second only.
    return time.clock_gettime(~pid << 3 | 2)


def _wait(service: Running, process: subprocess.Popen[bytes], path: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            if service.request("GET", path)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")
