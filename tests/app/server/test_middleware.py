"""The middleware, which every request and response passes."""

import asyncio
import contextlib
import gzip
import io
import json
import logging
import logging.config
import re
import shutil
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.testclient import TestClient

from app.keys.authentication import ReadKey
from app.main import create_app
from app.server.bodies import LEAST_RATE, Body, TooSlow
from app.server.logs import RequestLogHandler, logging_config, request_log
from app.settings import Settings
from tests.support.services import ADMIN_KEY
from tests.support.virtual_time import pause, run_in_virtual_time
from tests.support.waiting import WAIT_SECONDS

KEY = {"X-API-Key": ADMIN_KEY}
MEGABYTE = 1 << 20
HOW = ("HEAD", "GET")


@pytest.fixture
def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Return SQLite alone, because no middleware uses one."""
    shutil.copy(sqlite_template, tmp_path / "flowcast.db")
    return f"sqlite:///{tmp_path}/flowcast.db"


def with_probes(app: FastAPI) -> FastAPI:
    """Add routes that show what gets through."""

    @app.post("/v1/probe/size")
    async def size(request: Request) -> JSONResponse:
        body = await request.body()
        return JSONResponse({"size": len(body), "encoding": request.headers.get("content-encoding")})

    @app.post("/v1/import")
    async def take_file(request: Request) -> JSONResponse:
        return JSONResponse({"size": sum([len(part) async for part in request.stream()])})

    @app.get("/v1/probe/long")
    async def long(caller: ReadKey) -> JSONResponse:
        return JSONResponse({"text": "slot " * 1000})

    @app.get("/v1/probe/stream")
    async def stream(kind: str) -> StreamingResponse:
        return StreamingResponse((b"count\n" * 100 for _ in range(50)), media_type=kind)

    @app.get("/v1/probe/own")
    async def own() -> Response:
        return Response(headers={"Cache-Control": "max-age=5", "Content-Security-Policy": "default-src 'self'"})

    @app.get("/v1/probe/broken")
    async def broken() -> None:
        raise RuntimeError("the secret inside")

    app.router.routes[:] = app.router.routes[-6:] + app.router.routes[:-6]
    return app


@pytest.fixture
def probe(settings: Settings) -> Iterator[TestClient]:
    small = settings.model_copy(update={"max_body_megabytes": 1, "max_import_megabytes": 2})
    with TestClient(with_probes(create_app(small)), headers=KEY) as client:
        yield client


class TestRequestId:
    def test_each_answer_has_its_own(self, probe):
        first, second = (probe.get("/livez").headers["X-Request-ID"] for _ in range(2))
        assert first != second
        assert re.fullmatch(r"[0-9a-f]{18,}", first)

    @pytest.mark.parametrize("given", ["a", "proxy-1.2_3", "x" * 64])
    def test_a_sane_one_is_kept(self, probe, given):
        answer = probe.get("/nowhere", headers={"X-Request-ID": given})
        assert answer.headers["X-Request-ID"] == answer.json()["request_id"] == given

    @pytest.mark.parametrize("given", ["", "x" * 65, 'a"b', "a b", "a/b"])
    def test_any_other_is_replaced(self, probe, given):
        assert probe.get("/livez", headers={"X-Request-ID": given}).headers["X-Request-ID"] != given


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Restore the configuration of logging after the test."""
    loggers = [logging.getLogger(), logging.getLogger("flowcast"), request_log]
    kept = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in kept:
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


class BlockedStream(io.StringIO):
    """A stream whose reader does not read until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.released.wait(WAIT_SECONDS)
        return super().write(text)


@pytest.mark.usefixtures("own_logging")
class TestLog:
    def lines(self, settings, capsys, *paths: str, level="info", **options):
        logging.config.dictConfig(logging_config(level))
        with TestClient(with_probes(create_app(settings)), headers=KEY) as client:
            for path in paths:
                client.get(path, **options)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [line for line in lines if line["logger"] == "flowcast.requests"]

    def test_one_line_a_request(self, settings, capsys):
        seen, lost = self.lines(settings, capsys, "/v1/links/A", "/nowhere", headers={"X-Request-ID": "r1"})
        assert seen["time"].endswith("+00:00")
        assert seen["level"] == "info"
        assert (seen["request_id"], seen["method"], seen["status"]) == ("r1", "GET", 404)
        assert (seen["path"], seen["route"]) == ("/v1/links/A", "/v1/links/{link_id}")
        assert (seen["key_id"], seen["client"]) == ("environment", "testclient")
        assert seen["duration_ms"] > 0
        assert seen["bytes"] > 0
        assert (lost["route"], lost["key_id"]) == ("unmatched", None)

    def test_no_secret_is_written(self, settings, capsys):
        self_made = "fc_0123456789ab_sEcReT-part_of-it"
        paths = (f"/v1/links?key={ADMIN_KEY}", f"/v1/admin/keys/{self_made}", "/v1/links")
        written = json.dumps(self.lines(settings, capsys, *paths))
        assert ADMIN_KEY not in written
        assert "sEcReT" not in written
        assert "fc_0123456789ab_" in written

    def test_a_level_above_info_keeps_failures_only(self, settings, capsys):
        [line] = self.lines(settings, capsys, "/livez", "/v1/probe/broken", level="warning")
        assert (line["level"], line["status"]) == ("error", 500)

    def test_quotes_in_a_path_do_not_break_the_line(self, settings, capsys):
        [line] = self.lines(settings, capsys, '/a"b\\c')
        assert line["path"] == '/a"b\\c'

    def test_requests_are_answered_while_nothing_reads_the_log(self, settings, monkeypatch):
        monkeypatch.setattr("app.server.logs.MOST_WAITING", 2)
        stream = BlockedStream()
        logging.getLogger("flowcast").setLevel(logging.INFO)
        request_log.addHandler(RequestLogHandler(stream))
        with TestClient(create_app(settings)) as client:
            assert {client.get(f"/nowhere/{n}").status_code for n in range(10)} == {404}
            stream.released.set()
        # Those that waited, and those that were being written.
        assert 2 <= len(stream.getvalue().splitlines()) <= 4

    def test_a_handler_can_be_closed_twice(self):
        handler = RequestLogHandler(io.StringIO())
        handler.close()
        handler.close()  # as logging.config does with every handler there is

    def test_lines_are_written_again_after_a_full_disk(self, capsys):
        class FullDisk(io.StringIO):
            full = True

            def write(self, text: str) -> int:
                if self.full:
                    self.full = False
                    raise OSError(28, "No space left on device")
                return super().write(text)

        stream = FullDisk()
        handler = RequestLogHandler(stream)
        for message in ("lost", "kept"):
            handler.handle(logging.makeLogRecord({"msg": message}))
        handler.close()
        assert stream.getvalue() == "kept\n"
        assert "No space left on device" in capsys.readouterr().err


class TestHeaders:
    @pytest.mark.parametrize("path", ["/livez", "/v1/links", "/nowhere", "/v1/probe/broken"])
    def test_every_answer_is_guarded(self, probe, path):
        headers = probe.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "Strict-Transport-Security" not in headers

    def test_https_is_required_where_it_is_used(self, settings):
        with TestClient(create_app(settings), base_url="https://testserver") as client:
            assert "max-age" in client.get("/livez").headers["Strict-Transport-Security"]

    def test_responses_are_not_stored_unless_the_route_allows_it(self, probe):
        assert probe.get("/v1/links").headers["Cache-Control"] == "no-store"
        own = probe.get("/v1/probe/own").headers
        assert own.get_list("Cache-Control") == ["max-age=5"]
        assert own.get_list("Content-Security-Policy") == ["default-src 'self'"]

    def test_other_origins_are_refused_by_default(self, probe):
        asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
        assert probe.options("/v1/links", headers=asked).status_code == 405
        assert "Access-Control-Allow-Origin" not in probe.get("/v1/links", headers=asked).headers

    def test_named_origins_are_let_in(self, settings):
        named = settings.model_copy(update={"cors_origins": "https://map.example"})
        with TestClient(create_app(named), headers=KEY) as client:
            for origin, allowed in (("https://map.example", "https://map.example"), ("https://other.example", None)):
                asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
                assert client.options("/v1/links", headers=asked).headers.get("Access-Control-Allow-Origin") == allowed
                assert client.get("/livez", headers=asked).headers.get("Access-Control-Allow-Origin") == allowed


class TestBodies:
    def test_a_body_up_to_the_limit_comes_through(self, probe):
        assert probe.post("/v1/probe/size", content=bytes(MEGABYTE)).json()["size"] == MEGABYTE

    def test_a_larger_one_is_refused_by_its_announced_length(self, probe):
        answer = probe.post("/v1/probe/size", content=bytes(MEGABYTE + 1))
        assert answer.status_code == 413
        assert answer.json()["detail"] == "the body is larger than 1 MB, the most that this call accepts"

    def test_a_larger_one_is_refused_while_it_comes(self, probe):
        parts = (bytes(MEGABYTE // 2) for _ in range(3))
        assert probe.post("/v1/probe/size", content=parts).status_code == 413

    def test_files_have_a_limit_of_their_own(self, probe):
        assert probe.post("/v1/import", content=bytes(2 * MEGABYTE)).json()["size"] == 2 * MEGABYTE
        assert probe.post("/v1/import", content=bytes(2 * MEGABYTE + 1)).status_code == 413

    def test_gzip_is_unpacked(self, probe):
        packed = gzip.compress(b"A,2026-01-01T00:00:00Z,4\n" * 1000)
        body = probe.post("/v1/probe/size", content=packed, headers={"Content-Encoding": "gzip"}).json()
        assert body == {"size": 25_000, "encoding": None}

    def test_gzip_is_unpacked_off_the_event_loop(self, probe, monkeypatch):
        unpacked_on_the_loop = []

        class Unpacker:
            def __init__(self, wbits: int) -> None:
                self._unpacker = zlib.decompressobj(wbits)

            def decompress(self, data: bytes, most: int) -> bytes:
                try:
                    asyncio.get_running_loop()
                except RuntimeError:
                    unpacked_on_the_loop.append(False)
                else:
                    unpacked_on_the_loop.append(True)
                return self._unpacker.decompress(data, most)

            def __getattr__(self, name: str) -> object:
                return getattr(self._unpacker, name)

        monkeypatch.setattr("app.server.bodies.zlib", SimpleNamespace(decompressobj=Unpacker, error=zlib.error))
        packed = gzip.compress(bytes(MEGABYTE))
        assert probe.post("/v1/probe/size", content=packed, headers={"Content-Encoding": "gzip"}).status_code == 200
        assert set(unpacked_on_the_loop) == {False}

    def test_joined_gzip_streams_are_unpacked(self, probe):
        packed = gzip.compress(b"ab") + gzip.compress(b"cde")
        assert probe.post("/v1/probe/size", content=packed, headers={"Content-Encoding": "gzip"}).json()["size"] == 5

    def test_a_packed_file_of_several_parts_is_unpacked_whole(self, probe):
        packed = gzip.compress(bytes(2 * MEGABYTE))
        assert probe.post("/v1/import", content=packed, headers={"Content-Encoding": "gzip"}).json()["size"] == (
            2 * MEGABYTE
        )

    @pytest.mark.journey
    def test_the_limit_holds_for_what_is_unpacked(self, probe):
        packed = gzip.compress(bytes(200 * MEGABYTE))
        assert len(packed) < MEGABYTE
        assert probe.post("/v1/probe/size", content=packed, headers={"Content-Encoding": "gzip"}).status_code == 413

    @pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"counts" * 1000, mtime=0)[:-9]])
    def test_bad_gzip_is_refused(self, probe, content):
        answer = probe.post("/v1/probe/size", content=content, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "body"

    def test_unknown_packing_is_refused(self, probe):
        answer = probe.post("/v1/probe/size", content=b"x", headers={"Content-Encoding": "br"})
        assert answer.status_code == 415
        assert answer.headers["Accept-Encoding"] == "gzip, identity"

    def test_a_stranger_s_body_is_not_read(self, probe):
        answer = probe.post(
            "/v1/counts", content=b"{", headers={"X-API-Key": "wrong", "Content-Type": "application/json"}
        )
        assert answer.status_code == 401

    def test_a_body_that_does_not_come_is_given_up(self):
        async def silence():
            await asyncio.Event().wait()

        with pytest.raises(TooSlow):
            asyncio.run(Body(silence, 10, seconds=0.01).receive())

    def test_a_slow_body_is_given_up_though_it_is_never_silent_for_long(self, monkeypatch):
        assert self.parts_taken(monkeypatch, size=1) == 10

    def test_a_large_file_may_take_its_time(self, monkeypatch):
        assert self.parts_taken(monkeypatch, size=LEAST_RATE) == 15

    def parts_taken(self, monkeypatch, size: int) -> int:
        """Send fifteen parts, each after 0.1 s, to a service that waits for 1 s, and count those it takes."""
        monkeypatch.setattr("app.server.bodies.monotonic", lambda: asyncio.get_running_loop().time())

        async def send() -> dict:
            await pause(0.1)
            return {"type": "http.request", "body": bytes(size), "more_body": True}

        async def take() -> int:
            body = Body(send, MEGABYTE, seconds=1.0)
            taken = []
            with contextlib.suppress(TooSlow):
                while len(taken) < 15:
                    taken.append(await body.receive())
            return len(taken)

        return run_in_virtual_time(take())

    def test_a_call_with_small_bodies_has_a_small_limit(self, settings):
        with TestClient(create_app(settings), headers=KEY) as client:
            answer = client.post("/v1/admin/keys", content=bytes(MEGABYTE + 1))
            assert answer.status_code == 413
            assert answer.json()["detail"] == "the body is larger than 1 MB, the most that this call accepts"
            counts = b"link_id,slot_start,count\n" + b"\n" * MEGABYTE
            assert client.post("/v1/counts", content=counts, headers={"Content-Type": "text/csv"}).status_code == 200


class TestPacking:
    def test_long_answers_are_packed_for_those_who_can_unpack(self, probe):
        answer = probe.get("/v1/probe/long", headers={"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert int(answer.headers["Content-Length"]) < 500
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert answer.json() == {"text": "slot " * 1000}

    @pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "gzip; q=0.0, br"])
    def test_they_are_not_for_others(self, probe, accepted):
        answer = probe.get("/v1/probe/long", headers={"Accept-Encoding": accepted})
        assert "Content-Encoding" not in answer.headers
        assert answer.headers["Vary"] == "Accept-Encoding"

    def test_short_answers_are_left_alone(self, probe):
        answer = probe.get("/livez", headers={"Accept-Encoding": "gzip"})
        assert "Content-Encoding" not in answer.headers
        assert "Vary" not in answer.headers

    @pytest.mark.parametrize(("kind", "packed"), [("text/csv", "gzip"), ("text/event-stream", None)])
    def test_streams_are_packed_unless_they_are_events(self, probe, kind, packed):
        answer = probe.get("/v1/probe/stream", params={"kind": kind}, headers={"Accept-Encoding": "gzip"})
        assert answer.headers.get("Content-Encoding") == packed
        assert answer.text == "count\n" * 5000

    def test_head_is_get_without_a_body(self, probe):
        for accepted in ("gzip", "identity"):
            head, get = (probe.request(how, "/v1/probe/long", headers={"Accept-Encoding": accepted}) for how in HOW)
            assert head.status_code == 200
            assert head.content == b""
            for name in ("Content-Length", "Content-Encoding", "Vary"):
                assert head.headers.get(name) == get.headers.get(name)


class TestFailures:
    def test_the_unexpected_is_a_problem_without_internals(self, probe, caplog):
        with caplog.at_level(logging.ERROR, "flowcast"):
            answer = probe.get("/v1/probe/broken", headers={"X-Request-ID": "r1"})
        assert answer.status_code == 500
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["request_id"] == "r1"
        assert "secret" not in answer.text
        [record] = [record for record in caplog.records if record.name == "flowcast.middleware"]
        assert record.request_id == "r1"
        assert "the secret inside" in str(record.exc_info[1])

    @pytest.mark.parametrize("path", ["/v1/links/a%00b", "/v1/links?cursor=%00", "/v1/links?%00=1"])
    def test_nul_in_the_address_is_refused(self, probe, path):
        assert probe.get(path).status_code == 422

    @pytest.mark.parametrize("path", ["/v1/links/%ff", "/v1/links?limit=%ff", "/v1/links/%ed%a0%80"])
    def test_bytes_that_are_no_text_are_refused(self, probe, path):
        assert 400 <= probe.get(path).status_code < 500


class TestLimits:
    @pytest.fixture
    def limited(self, settings) -> Iterator[TestClient]:
        with TestClient(create_app(settings.model_copy(update={"rate_limit": 3}))) as client:
            yield client

    def test_a_key_may_ask_so_often_and_no_more(self, limited):
        statuses = [limited.get("/v1/links", headers=KEY).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = limited.get("/v1/links", headers=KEY)
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        assert refused.json()["type"] == "/problems/too-many-requests"
        assert limited.get("/livez").status_code == 200

    def test_keys_cannot_be_guessed_quickly(self, limited):
        guesses = [limited.get("/v1/links", headers={"X-API-Key": f"guess {n}"}).status_code for n in range(5)]
        assert guesses == [401, 401, 401, 429, 429]
        assert limited.get("/v1/links", headers=KEY).status_code == 200
        assert limited.get("/v1/links").status_code == 401

    def test_no_limit_where_none_is_set(self, settings):
        with TestClient(create_app(settings.model_copy(update={"rate_limit": 0}))) as client:
            assert {client.get("/v1/links", headers={"X-API-Key": "wrong"}).status_code for _ in range(80)} == {401}
            assert {client.get("/v1/links", headers=KEY).status_code for _ in range(10)} == {200}
