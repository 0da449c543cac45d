"""A worker beside the service: started with it, started again when it dies, stopped with it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

RESTART_SECONDS = 2.0
STOP_SECONDS = 20.0

log = logging.getLogger("flowcast.serve")


class _Terminated(SystemExit):
    """SIGTERM came."""


def _leave(number: int, _frame: FrameType | None) -> None:
    raise _Terminated(128 + number)


class WorkerBeside:
    """Keeps one worker process alive for as long as it is entered."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._before: Any = signal.SIG_DFL
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="worker-beside", daemon=True)

    def __enter__(self) -> WorkerBeside:
        # The server, once it has stopped, raises the signal again that stopped it. By default that would end
        # this process on the spot, and leave the worker to itself.
        self._before = signal.signal(signal.SIGTERM, _leave)
        self._thread.start()
        return self

    def __exit__(self, _kind: object, problem: object, _where: object) -> None:
        self._over.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self._thread.join(timeout=2 * STOP_SECONDS)
        signal.signal(signal.SIGTERM, self._before)
        if isinstance(problem, _Terminated):
            signal.raise_signal(signal.SIGTERM)  # to end as whoever sent it expects

    def _watch(self) -> None:
        while not self._over.is_set():
            # A process group of its own: Ctrl-C reaches the service, which then tells the worker.
            command = [sys.executable, "-m", "app", "worker", "--parent", str(os.getpid())]
            self._process = subprocess.Popen(command, start_new_session=True)
            while self._process.poll() is None and not self._over.wait(0.2):
                pass
            if self._over.is_set():
                self._end(self._process)
            else:
                log.error("the worker ended and is started again", extra={"code": self._process.returncode})
                self._over.wait(RESTART_SECONDS)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
