"""The demo's service: a process of its own that never outlives the demo."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

HOST = "127.0.0.1"
READY_SECONDS = 120.0
FINISH_SECONDS = 10.0
LAST_WORDS = 300  # characters of the log
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


class ServiceGone(Exception):
    """The service ended by itself."""


class ServiceProcess:
    """A running ``flowcast serve``."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self._process, self._log = process, log
        self.address = f"http://{HOST}:{port}"

    def require_alive(self) -> None:
        """Raise ``ServiceGone`` when the process has ended."""
        if self._process.poll() is not None:
            words = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise ServiceGone(f"the service ended; {self._log} says: {words[0][-LAST_WORDS:]}")

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready()`` says so."""
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            self.require_alive()
            if time.monotonic() > deadline:
                raise ServiceGone(f"the service was not ready after {READY_SECONDS:.0f} s; see {self._log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the process gracefully, or kill it."""
        self._process.terminate()
        try:
            self._process.wait(FINISH_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port(port: int) -> int:
    """Check that a port can be listened on, 0 for any; an ``OSError`` says why not."""
    with socket.create_server((HOST, port)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running_service(environment: Mapping[str, str], port: int, log: Path) -> Iterator[ServiceProcess]:
    """Run the service for the length of a block."""
    command = [sys.executable, "-c", "from app.cli import main; main()", "serve", "--host", HOST, "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends the service in order
            preexec_fn=_end_with_parent,
        )
    service = ServiceProcess(process, log, port)
    try:
        yield service
    finally:
        service.stop()


def _end_with_parent() -> None:
    """Ask Linux to end the service even if the demo is killed without a chance to do so itself."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
