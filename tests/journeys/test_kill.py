"""Acknowledged counts and runs are not lost when real processes are killed."""

import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import psycopg
import pytest

from tests.support.databases import UNUSED_DATABASES, create_database
from tests.support.postgresql import WAITING_SESSIONS
from tests.support.services import Service, listens, running_service, slot_start
from tests.support.waiting import WAIT_SECONDS, wait_until


class RestartedService:
    """A service that is started again on its next use after its end; every test has its own links."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.database_url, self.folder, self.stack = database_url, folder, ExitStack()
        self.service: Service | None = None

    def running(self) -> Service:
        if self.service is None or self.service.process.poll() is not None:
            self.service = self.stack.enter_context(running_service(self.database_url, self.folder))
        return self.service


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartedService]:
    folder = tmp_path_factory.mktemp("kept")
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), folder / "flowcast.db")
        url = f"sqlite:///{folder}/flowcast.db"
    else:
        name = f"test_{uuid.uuid4().hex}"
        url = create_database(request.getfixturevalue("postgresql"), name, "template")
    kept = RestartedService(url, folder)
    with kept.stack:
        yield kept
    if request.param == "postgresql":
        UNUSED_DATABASES.append(name)


def test_a_kill_loses_nothing_acknowledged_and_leaves_no_half_batch(kept):
    """One batch is acknowledged right before the kill, while others are sent one after another."""
    acknowledged = []
    service, others = kept.running(), [f"B{i}" for i in range(10)]
    for link_id in ("A", *others):
        assert service.request("PUT", f"/v1/links/{link_id}", {"zone": "UTC"})[0] == 201

    def send() -> None:
        for link_id, i in product(others, range(0, 960, 12)):  # more than there is time for
            counts = [{"link_id": link_id, "slot_start": slot_start(j), "count": j} for j in range(i, i + 12)]
            try:
                status, _ = service.request("POST", "/v1/counts", {"counts": counts})
            except OSError:
                return
            if status == 200:
                acknowledged.append((link_id, i))

    sender = threading.Thread(target=send)
    sender.start()
    wait_until(lambda: len(acknowledged) >= 5)
    counts = [{"link_id": "A", "slot_start": slot_start(i), "count": i} for i in range(500)]
    status, report = service.request("POST", "/v1/counts", {"counts": counts})
    service.kill()
    sender.join()
    assert (status, report["stored"]) == (200, 500)
    assert kept.running().counts("A") == {slot_start(i): i for i in range(500)}
    there = {link_id: kept.running().counts(link_id) for link_id in others}
    for link_id, i in acknowledged:
        assert all(there[link_id].get(slot_start(j)) == j for j in range(i, i + 12))
    for link_id, i in product(others, range(0, 960, 12)):
        assert sum(slot_start(j) in there[link_id] for j in range(i, i + 12)) in (0, 12)
    assert len(acknowledged) < len(others) * 80  # the kill was in the middle


# Who serves waits for its requests, whatever these wait for.
@pytest.mark.parametrize("kept", ["postgresql"], indirect=True)
def test_sigterm_finishes_what_is_under_way(kept):
    service = kept.running()
    assert service.request("PUT", "/v1/links/C", {"zone": "UTC"})[0] == 201
    counts = [{"link_id": "C", "slot_start": slot_start(i), "count": i} for i in range(96)]
    answers = []
    sender = threading.Thread(target=lambda: answers.append(service.request("POST", "/v1/counts", {"counts": counts})))
    with psycopg.connect(kept.database_url) as busy, psycopg.connect(kept.database_url, autocommit=True) as looking:
        busy.execute("LOCK TABLE counts IN EXCLUSIVE MODE")
        sender.start()
        wait_until(lambda: looking.execute(WAITING_SESSIONS).fetchone() != (0,))
        service.process.terminate()
        wait_until(lambda: not listens(service.port))
        assert answers == []
    sender.join()
    assert service.process.wait(timeout=WAIT_SECONDS) in (0, -signal.SIGTERM)  # uvicorn ends by the signal it was sent
    assert [(status, report["stored"]) for status, report in answers] == [(200, 96)]
