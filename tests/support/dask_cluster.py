"""A Dask scheduler and its workers as real local processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.services import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]


class DaskCluster:
    """A context manager that starts a scheduler and workers on request, and stops them on exit."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder, self._port = folder, free_port()
        self._environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers, *([] if self.scheduler is None else [self.scheduler])]:
            end(process)

    def start_scheduler(self) -> None:
        """Start the scheduler and wait until it listens."""
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(self._port))
        log = self._folder / "dask.log"

        def listens() -> bool:
            assert self.scheduler is not None
            assert self.scheduler.poll() is None, log.read_text()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
                return True
            return False

        wait_until(listens, explain=log.read_text)

    def start_workers(self, n: int) -> None:
        """Start ``n`` workers of one thread each, without waiting for them."""
        given = ("--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder))
        self.workers += [self._start("worker", self.address, *given) for _ in range(n)]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it if it does not end."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)  # a test may have suspended it
        process.terminate()
        try:
            process.wait(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
