"""A Dask scheduler and its workers as real processes of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.running_service import free_port

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0
END_SECONDS = 20.0


class DaskCluster:
    """Starts a scheduler and workers when it is told to, and ends them all in the end."""

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
        """Start the scheduler, and return when it listens."""
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(self._port))
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
                return
            except OSError:
                if self.scheduler.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "dask.log").read_text()) from None
                time.sleep(0.05)

    def start_workers(self, n: int) -> None:
        """Start so many workers of one thread each; they come when they are ready."""
        given = ("--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder))
        self.workers += [self._start("worker", self.address, *given) for _ in range(n)]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, kindly at first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
