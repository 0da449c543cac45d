"""A service as a real process, as a stranger would start it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEY = "an-admin-key-for-tests-only"


class Service:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, said, _ = self.ask_as(KEY, method, path, body)
        return status, said

    def ask_as(self, key: str, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        """Ask with a key; give status, body and headers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        question = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(question, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null"), answer.headers
        except urllib.error.HTTPError as problem:
            return problem.code, json.loads(problem.read() or b"null"), problem.headers

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)


@contextmanager
def running_service(
    database_url: str,
    folder: Path,
    *arguments: str,
    port: int = 0,
    worker: bool = False,
    program: Sequence[str] = ("-m", "app"),
    **settings: str,
) -> Iterator[Service]:
    """Start ``flowcast serve``, with a retrain worker if need be, and wait until it is ready; stop it at the end."""
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
    environment = os.environ | {
        "FLOWCAST_DATABASE_URL": database_url,
        "FLOWCAST_MODEL_STORE": str(folder / "models"),
        "FLOWCAST_CLOCK": "feed",
        "FLOWCAST_ADMIN_KEY": KEY,
        **settings,
    }
    beside = "--worker" if worker else "--no-worker"
    command = [sys.executable, *program, "serve", "--port", str(port), beside, *arguments]
    with (folder / f"service-{port}.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    service = Service(process, port)
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                if service.ask("GET", "/readyz")[0] == 200:
                    break
            except OSError:
                pass
            assert process.poll() is None, (folder / f"service-{port}.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)
