"""The demo's service: a process of its own, which ends with the demo."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from app.demo.replay import FeedClient

HOST = "127.0.0.1"
READY_SECONDS = 120.0
FINISH_SECONDS = 10.0
MOST_CHARACTERS = 300  # of the log
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
            lines = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["it is empty"]
            raise ServiceGone(f"the service ended; the last line of {self._log}: {lines[0][-MOST_CHARACTERS:]}")

    def wait_until_ready(self) -> None:
        """Wait until the service can take requests."""
        client, deadline = FeedClient(self.address, ""), time.monotonic() + READY_SECONDS
        while True:
            with suppress(OSError):
                client.request("/readyz")
                return
            self.require_alive()
            if time.monotonic() > deadline:
                raise ServiceGone(f"the service was not ready after {READY_SECONDS:.0f} s; see {self._log}")
            time.sleep(0.1)


def free_port(port: int) -> int:
    """Return a port that can be listened on, 0 for any; raise an ``OSError`` with the reason if it cannot."""
    with socket.create_server((HOST, port)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running_service(environment: Mapping[str, str], port: int, log: Path) -> Iterator[ServiceProcess]:
    """Run the service, ready for requests, for the length of a block."""
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
        service.wait_until_ready()
        yield service
    finally:
        process.terminate()
        try:
            process.wait(FINISH_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    """Make Linux end the service when the demo is killed and cannot do so itself."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
