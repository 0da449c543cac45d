"""Bounds on what a process holds at once: bodies, streams of events and imports, each for itself."""

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.http.shedding import FROM_MEMORY, MOST_IMPORTS
from app.settings import Settings
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY
from tests.support.waiting import WAIT_SECONDS

pytestmark = on_sqlite
CSV = {"Content-Type": "text/csv"}
HALF = b"link_id,slot_start,count\n" + b"\n" * 600_000  # more than half of the room for bodies


@pytest.fixture
def settings(settings: Settings) -> Settings:
    bounds = {"max_body_megabytes": 1, "max_bodies_megabytes": 1, "max_streams": 2, "max_waiting": 1}
    return settings.model_copy(update=bounds)


class SlowRequest:
    """A request that stays open: its body, if it has one, begins and does not end before the client hangs up."""

    def __init__(self, app: FastAPI, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        sent = {"x-api-key": ADMIN_KEY, "content-type": "text/csv", **headers}
        if body:
            sent["transfer-encoding"] = "chunked"
        self._scope: dict[str, Any] = {
            "type": "http", "method": method, "path": path, "query_string": b"", "root_path": "", "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("192.0.2.1", 1), "server": ("testserver", 80),
        }  # fmt: skip
        self._app, self._body, self._hang_up = app, body, asyncio.Event()
        self.begun, self.status = threading.Event(), 0

    async def __call__(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body, "more_body": True}
        self.begun.set()
        await self._hang_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    async def hang_up(self) -> None:
        self._hang_up.set()


@contextmanager
def kept_open(client: TestClient, request: SlowRequest) -> Iterator[SlowRequest]:
    """Send a request and keep it open in the block; wait for its end afterwards."""
    under_way = client.portal.start_task_soon(request)
    try:
        assert request.begun.wait(WAIT_SECONDS)
        yield request
    finally:
        client.portal.call(request.hang_up)
        under_way.result(WAIT_SECONDS)


def post(client: TestClient, content: bytes = HALF, **headers: str) -> Any:
    return client.post("/v1/counts", content=content, headers=CSV | headers)


class TestBodies:
    @pytest.mark.parametrize("packed", [False, True])
    def test_past_the_room_for_all_bodies_one_is_refused_until_another_ends(self, service, client, packed):
        body = gzip.compress(HALF) if packed else HALF
        headers = {"content-encoding": "gzip"} if packed else {}
        with kept_open(client, SlowRequest(service, "POST", "/v1/counts", body, **headers)):
            refused = post(client)
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/overloaded")
            assert refused.headers["Retry-After"].isdigit()
            assert client.put("/v1/links/A", json={"zone": "UTC"}).status_code == 201  # there is room for a small one
        assert post(client).status_code == 200

    @pytest.mark.parametrize(
        "end",
        [
            lambda client: post(client),
            lambda client: post(client, b"a,b\n" + HALF),
            lambda client: post(client, HALF + HALF),
            lambda client: post(client, HALF, **{"Content-Type": "image/png"}),
            lambda client: post(client, gzip.compress(HALF)[:-9], **{"Content-Encoding": "gzip"}),
        ],
        ids=["stored", "refused", "too large", "unknown language", "broken"],
    )
    def test_however_a_request_ends_its_room_is_free_again(self, client, end: Callable[[TestClient], Any]):
        for _ in range(3):
            assert end(client).status_code in (200, 413, 415, 422)
        assert post(client).status_code == 200

    def test_imports_go_to_disk_and_take_no_room(self, service, client):
        with kept_open(client, SlowRequest(service, "POST", "/v1/import", HALF)):
            assert post(client).status_code == 200


class TestPlaces:
    @pytest.mark.parametrize("lane", ["events", "import"])
    def test_streams_and_imports_that_wait_for_a_thread_keep_no_call_out(self, service, client, lane):
        over = threading.Event()

        async def wait_in_line() -> list[bool]:
            shedding = service.state.shedding
            waiting = [asyncio.create_task(shedding.run_in_lane(lane, over.wait)) for _ in range(10)]
            for _ in range(10):
                await asyncio.sleep(0)  # until each has a thread or waits for one
            try:
                shedding.check("GET", "/v1/links", b"")
                shedding.check("POST", "/v1/counts", b"")
            finally:
                over.set()
            return await asyncio.gather(*waiting)

        assert all(client.portal.call(wait_in_line))

    def test_streams_past_their_bound_are_refused_until_another_ends(self, service, client):
        def stream() -> SlowRequest:
            return SlowRequest(service, "GET", "/v1/events")

        with kept_open(client, stream()):
            with kept_open(client, stream()) as second:
                refused = client.get("/v1/events")
                assert (refused.status_code, refused.json()["type"]) == (503, "/problems/overloaded")
                assert refused.headers["Retry-After"].isdigit()
                assert client.get("/v1/links").status_code == 200
            assert second.status == 200
            with kept_open(client, stream()) as third:
                pass
            assert third.status == 200

    def test_imports_past_their_bound_are_refused_before_their_file_is_read(self, service, client):
        with ExitStack() as stack:
            for _ in range(MOST_IMPORTS):
                stack.enter_context(kept_open(client, SlowRequest(service, "POST", "/v1/import", HALF)))
            late = SlowRequest(service, "POST", "/v1/import", HALF)
            client.portal.call(late)
            assert (late.status, late.begun.is_set()) == (503, False)
            assert post(client).status_code == 200
        answer = client.post("/v1/import", content=HALF)
        assert answer.status_code == 200, answer.text


@pytest.mark.usefixtures("database_url")
def test_only_forecasts_that_are_in_memory_pass_while_too_much_waits():
    assert {b"", b"horizon=1", b"horizon=4"} <= set(FROM_MEMORY)
    assert not set(FROM_MEMORY) & {b"horizon=5", b"horizon=40", b"horizon=4&explain=true", b"level=0.5"}
