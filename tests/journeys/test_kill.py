"""What is acknowledged stays: real processes, killed."""

import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.journeys.service import Service, running_service


class Kept:
    """A service that is started again when it is asked for after its end; every test has links of its own."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.database_url, self.folder, self.stack = database_url, folder, ExitStack()
        self.service: Service | None = None

    def running(self) -> Service:
        if self.service is None or self.service.process.poll() is not None:
            self.service = self.stack.enter_context(running_service(self.database_url, self.folder))
        return self.service


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    with ExitStack() as stack:
        if request.param == "sqlite":
            shutil.copy(request.getfixturevalue("sqlite_template"), folder / "flowcast.db")
            url = f"sqlite:///{folder}/flowcast.db"
        else:
            address, name = request.getfixturevalue("postgresql"), f"test_{uuid.uuid4().hex}"
            connection = stack.enter_context(psycopg.connect(address("postgres"), autocommit=True))
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template")
            stack.callback(connection.execute, f"DROP DATABASE {name} WITH (FORCE)")
            url = address(name)
        kept = Kept(url, folder)
        stack.enter_context(kept.stack)
        yield kept


def slot(i: int) -> str:
    return f"2025-09-{1 + i // 96:02}T{i % 96 // 4:02}:{i % 4 * 15:02}:00Z"


def stored(service, link_id: str) -> dict[str, int]:
    path = f"/v1/links/{link_id}/counts?from={slot(0)}&to={slot(960)}&limit=10000"
    return {
        one["slot_start"]: one["count"] for one in service.ask("GET", path)[1]["counts"] if one["count"] is not None
    }


def test_counts_are_there_after_a_kill_right_after_the_answer(kept):
    service = kept.running()
    assert service.ask("PUT", "/v1/links/A", {})[0] == 201
    counts = [{"link_id": "A", "slot_start": slot(i), "count": i} for i in range(500)]
    status, report = service.ask("POST", "/v1/counts", {"counts": counts})
    service.kill()
    assert (status, report["stored"]) == (200, 500)
    assert stored(kept.running(), "A") == {slot(i): i for i in range(500)}


def test_a_kill_in_the_middle_of_batches_loses_nothing_acknowledged_and_stores_none_by_half(kept):
    acknowledged = []
    service = kept.running()
    assert service.ask("PUT", "/v1/links/B", {})[0] == 201

    def send() -> None:
        for i in range(0, 960, 12):
            counts = [{"link_id": "B", "slot_start": slot(j), "count": j} for j in range(i, i + 12)]
            try:
                status, _ = service.ask("POST", "/v1/counts", {"counts": counts})
            except OSError:
                return
            if status == 200:
                acknowledged.append(i)

    sender = threading.Thread(target=send)
    sender.start()
    while len(acknowledged) < 5:
        assert sender.is_alive()
        time.sleep(0.005)
    service.kill()
    sender.join()
    there = stored(kept.running(), "B")
    for i in acknowledged:
        assert all(there.get(slot(j)) == j for j in range(i, i + 12))
    for i in range(0, 960, 12):
        assert sum(slot(j) in there for j in range(i, i + 12)) in (0, 12)


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


def eventually(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Who serves waits for its requests, whatever these wait for.
@pytest.mark.parametrize("kept", ["postgresql"], indirect=True)
def test_sigterm_finishes_what_is_under_way(kept):
    service = kept.running()
    assert service.ask("PUT", "/v1/links/C", {})[0] == 201
    counts = [{"link_id": "C", "slot_start": slot(i), "count": i} for i in range(96)]
    answers = []
    sender = threading.Thread(target=lambda: answers.append(service.ask("POST", "/v1/counts", {"counts": counts})))
    with psycopg.connect(kept.database_url) as busy, psycopg.connect(kept.database_url, autocommit=True) as looking:
        busy.execute("LOCK TABLE counts IN EXCLUSIVE MODE")
        sender.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'counts'::regclass"
        eventually(lambda: looking.execute(waiting).fetchone())
        service.process.terminate()
        eventually(lambda: refuses(service.port))
        assert answers == []
    sender.join()
    assert service.process.wait(timeout=60) in (0, -signal.SIGTERM)  # uvicorn ends by the signal it was sent
    assert [(status, report["stored"]) for status, report in answers] == [(200, 96)]
