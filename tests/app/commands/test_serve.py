"""``flowcast serve``, as a process of its own."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import httpx2 as httpx
import pytest

from tests.support.services import free_port, listens
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.journey

FLOWCAST = Path(sys.executable).with_name("flowcast")


def get(url: str, **headers: str) -> str:
    """Read an answer over a connection of its own; httpx would load the certificates of the machine for each."""
    with urlopen(Request(url, headers=headers), timeout=WAIT_SECONDS) as answer:
        return str(answer.read().decode())


class Served:
    """A running service."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "log.jsonl"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("FLOWCAST_")}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [FLOWCAST, "serve", "--port", str(self.port), *options],
                env=variables | {"FLOWCAST_MODEL_STORE": str(folder / "models")} | environment,
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._answers, explain=self.log.read_text)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            return bool(get(f"{self.url}/livez"))
        return False

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)

    def logged(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    with contextlib.ExitStack() as stack:

        def start(*options: str, **environment: str) -> Served:
            served = Served(tmp_path, *options, **environment)
            stack.callback(served.process.wait, WAIT_SECONDS)
            stack.callback(served.process.terminate)
            return served

        yield start


def test_a_first_start_leaves_a_key_and_sigterm_ends_it_in_order(serve, tmp_path):
    served = serve()
    key_file = tmp_path / "admin.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    key = key_file.read_text().strip()
    with httpx.Client(base_url=served.url) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert "server" not in ready.headers
        assert client.get("/v1/admin/keys").status_code == 401
        assert client.get("/v1/admin/keys", headers={"X-API-Key": key}).status_code == 200

    body = json.dumps({"name": "slow", "scopes": ["read"]}).encode()
    head = (
        f"POST /v1/admin/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")  # the body is waited for
        connection.sendall(body[:5])
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listens(served.port))
        connection.sendall(body[5:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 201")
    served.process.wait(WAIT_SECONDS)

    written = served.log.read_text()
    assert str(key_file) in written
    assert key not in written
    [line] = [line for line in served.logged() if line.get("path") == "/readyz"]
    assert (line["status"], line["client"]) == (200, "127.0.0.1")
    assert key_file.read_text().strip() == key


def test_a_port_in_use_is_refused_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = subprocess.run(
            [FLOWCAST, "serve", "--port", str(port)], capture_output=True, text=True, cwd=tmp_path, check=False
        )
    assert refused.returncode == 2
    assert refused.stderr == f"flowcast serve: cannot listen on 127.0.0.1 port {port}: address already in use\n"
    assert list(tmp_path.iterdir()) == []


def test_several_processes_share_key_metrics_and_port(serve, tmp_path):
    served = serve("--no-worker", "--workers", "2", "--root-path", "/flowcast", TMPDIR=str(tmp_path))
    [shared] = tmp_path.glob("flowcast-metrics-*")
    key = (tmp_path / "admin.key").read_text().strip()

    def ask(n: int) -> None:
        for _ in range(n):  # a connection each, so that both processes have their share
            get(f"{served.url}/v1/links", **{"X-API-Key": key})

    threads = [threading.Thread(target=ask, args=(10,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = 'flowcast_requests_total{method="GET",route="/v1/links",status="2xx"} 40.0'
    # A process counts a request just after its answer has left.
    wait_until(lambda: expected in get(f"{served.url}/metrics"))
    assert json.loads(get(f"{served.url}/openapi.json"))["servers"] == [{"url": "/flowcast"}]
    assert served.stop() == 0
    assert not shared.exists()


def test_without_upgrade_an_old_schema_is_refused(tmp_path):
    refused = subprocess.run(
        [FLOWCAST, "serve", "--port", "0", "--no-upgrade"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert refused.returncode == 2
    assert "flowcast db upgrade" in refused.stderr
