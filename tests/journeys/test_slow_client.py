"""Clients that keep a connection for nothing, over real sockets against a real process: they are cut off, no others."""

import contextlib
import itertools
import json
import re
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.support.services import ADMIN_KEY, Service, running_service, slot_start
from tests.support.waiting import WAIT_SECONDS, wait_until

HEAD_SECONDS, BODY_SECONDS = 4, 6
AT_ONCE = 200
LINKS = [f"L{i}" for i in range(1000)]
CREDENTIALS = f"Host: flowcast\r\nX-API-Key: {ADMIN_KEY}\r\n".encode()
POST = b"POST /v1/counts HTTP/1.1\r\n" + CREDENTIALS + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("slow")
    settings = {
        "FLOWCAST_HEADER_SECONDS": str(HEAD_SECONDS),
        "FLOWCAST_BODY_SECONDS": str(BODY_SECONDS),
        "FLOWCAST_LOG_LEVEL": "info",
    }
    with running_service(f"sqlite:///{folder}/flowcast.db", folder, "--no-worker", **settings) as service:
        yield service


def connect(service: Service, *, buffer: int | None = None) -> socket.socket:
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(WAIT_SECONDS)
    client.connect(("127.0.0.1", service.port))
    return client


def rest(client: socket.socket) -> bytes:
    """Read until the other side closes; one that never does ends the test by a timeout."""
    read = b""
    with contextlib.suppress(ConnectionError), client:
        while part := client.recv(65_536):
            read += part
    return read


def send_slowly(client: socket.socket, text: bytes, pause: float = 0.2) -> bytes:
    """Send a byte at a time while the service accepts them, then read its response."""
    client.settimeout(pause)
    answer = b""
    with contextlib.suppress(ConnectionError), client:
        for place in range(len(text)):
            client.send(text[place : place + 1])
            try:
                part = client.recv(65_536)
            except TimeoutError:
                continue
            answer += part
            if not part:
                break
    return answer


def problem_in(answer: bytes) -> dict:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    return json.loads(body)


def logged(service: Service, words: str) -> int:
    return len(re.findall(words, service.log.read_text()))


def test_a_silent_client_is_let_go(service):
    assert rest(connect(service)) == b""


def test_a_head_that_stops_half_way_is_answered_and_closed(service):
    begun = [b"GET /livez HTTP/1.1\r\nHo", b"\r\n\r\n", b"POST"]
    clients = [connect(service) for _ in begun]
    for client, result in zip(clients, begun, strict=True):  # all at once: each waits as long as it may
        client.sendall(result)
    for client in clients:
        body = problem_in(rest(client))
        assert (body["status"], body["type"]) == (408, "/problems/too-slow")
        assert body["detail"] == f"no complete request arrived within {HEAD_SECONDS} s"


def test_a_head_that_comes_byte_by_byte_is_cut_off(service):
    endless = b"GET /livez HTTP/1.1\r\n" + b"X-Padding: more\r\n" * 100
    assert problem_in(send_slowly(connect(service), endless))["status"] == 408


def test_a_second_request_has_no_more_time_than_the_first(service):
    client = connect(service)
    client.sendall(b"GET /livez HTTP/1.1\r\nHost: flowcast\r\n\r\nGET /liv")
    first, _, second = rest(client).partition(b'{"status":"alive"}')
    assert first.startswith(b"HTTP/1.1 200")
    assert problem_in(second)["status"] == 408


def test_a_body_that_stops_or_comes_byte_by_byte_is_cut_off(service):
    silent, slow = connect(service), connect(service)
    silent.sendall(POST + b'{"counts"')
    slow.sendall(POST)
    assert problem_in(send_slowly(slow, b" " * 1000))["status"] == 408
    body = problem_in(rest(silent))
    assert (body["status"], body["instance"]) == (408, "/v1/counts")


def test_the_rest_of_a_refused_body_is_not_waited_for(service):
    client = connect(service)
    client.sendall(POST.replace(ADMIN_KEY.encode(), b"wrong"))
    assert send_slowly(client, b" " * 1000).startswith(b"HTTP/1.1 401")


def test_a_stream_of_events_that_is_not_read_is_closed(service):
    """Fill the machine's buffer of 4 MB and then the service's with what is not read, until the stream is cut off.

    Lists of links fill most of it, because each takes less work than as much in events.
    """
    service.request("POST", "/v1/links", {"links": [{"link_id": link_id, "zone": "UTC"} for link_id in LINKS]})
    with connect(service, buffer=4096) as reader:
        for path in (*[b"/v1/links?limit=1000"] * 12, b"/v1/events"):
            reader.sendall(b"GET " + path + b" HTTP/1.1\r\n" + CREDENTIALS + b"\r\n")
        assert reader.recv(1000).startswith(b"HTTP/1.1 200")
        looks = itertools.count()

        def is_cut_off() -> bool:
            # It is given some time after each batch: another one, once there is enough, would be work for nothing.
            slot, wait = divmod(next(looks), 8)
            if not wait:
                counts = [{"link_id": link_id, "slot_start": slot_start(slot), "count": 5} for link_id in LINKS]
                assert service.request("POST", "/v1/counts", {"counts": counts})[0] == 200
            return bool(logged(service, "an answer that is not read"))

        wait_until(is_cut_off, seconds=2 * WAIT_SECONDS)
    assert service.request("GET", "/livez")[0] == 200


class TestHeads:
    @pytest.mark.parametrize(
        "head",
        [
            b"GET /livez?" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
            b"GET /livez HTTP/1.1\r\n" + b"X: a\r\n" * 60_000,
        ],
    )
    def test_a_head_without_end_is_refused(self, service, head):
        client = connect(service)
        with contextlib.suppress(ConnectionError):
            client.sendall(head)
        answer = rest(client)
        assert not answer or problem_in(answer)["type"] == "/problems/head-too-large"  # a reset may overtake it
        assert b"200 OK" not in answer

    def test_a_long_head_and_what_follows_a_large_body_are_read(self, service):
        client = connect(service)
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: flowcast\r\nX: " + b"a" * 60_000 + b"\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        body = b" " * 500_000
        client.sendall(POST.replace(b"1000", b"%d" % len(body)) + body + b"GET /livez HTTP/1.1\r\n")
        client.sendall(b"Connection: close\r\n\r\n")
        assert rest(client).count(b"HTTP/1.1 ") == 2

    @pytest.mark.parametrize(
        "smuggled",
        [
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            b"Content-Length: +5\r\n\r\nhello",
            b"Content-Length : 5\r\n\r\nhello",
            b"X: a\r\n Content-Length: 5\r\n\r\nhello",
            b"X: a\x00b\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\na\r\n",
        ],
    )
    def test_a_request_that_two_servers_could_read_differently_is_refused(self, service, smuggled):
        client = connect(service)
        client.sendall(b"POST /v1/counts HTTP/1.1\r\n" + CREDENTIALS + smuggled)
        answer = rest(client)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert problem_in(answer)["type"] == "/problems/bad-request"

    def test_trailers_change_nothing(self, service):
        client = connect(service)
        client.sendall(
            b"POST /v1/counts HTTP/1.1\r\nHost: flowcast\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n{}\r\n0\r\nX-API-Key: " + ADMIN_KEY.encode() + b"\r\n\r\n"
        )
        assert rest(client).startswith(b"HTTP/1.1 401")

    def test_what_is_around_a_body_is_bounded(self, service):
        client = connect(service)
        client.sendall(b"POST /v1/counts HTTP/1.1\r\n" + CREDENTIALS + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            client.sendall(b"2\r\n{}\r\n0\r\n" + b"X: a\r\n" * 100_000)
        assert b"HTTP/1.1 2" not in rest(client)

    @pytest.mark.parametrize("path", ["/v1/links/..%2fadmin%2fkeys", "/v1/links/%2e%2e/admin/keys", "/v1//admin/keys"])
    def test_no_way_of_writing_a_path_leads_elsewhere(self, service, path):
        assert service.request("GET", path)[0] == 404

    @pytest.mark.parametrize(
        "path", ["/v1/links/A%0d%0aSet-Cookie:%20a", "/v1/links/%zz", "/v1/links/a%0a", "/v1/links/%ff"]
    )
    def test_paths_that_are_no_ids_are_refused(self, service, path):
        assert service.request("GET", path)[0] == 422

    def test_an_upgrade_is_not_made(self, service):
        client = connect(service)
        client.sendall(
            b"GET /livez HTTP/1.1\r\nHost: flowcast\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
        )
        assert rest(client).startswith(b"HTTP/1.1 200")
        wait_until(lambda: '"path": "/livez"' in service.log.read_text())
        assert "upgrade" not in service.log.read_text()  # else any client could fill it


def test_two_hundred_of_them_do_not_keep_others_waiting(service):
    begin: list[Callable[[socket.socket], None]] = [
        lambda client: None,
        lambda client: client.sendall(b"GET /livez HTTP/1.1\r\nX: "),
        lambda client: client.sendall(POST + b"{"),
        lambda client: client.sendall(POST.replace(ADMIN_KEY.encode(), b"wrong") + b"{"),
    ]
    clients = [connect(service) for _ in range(AT_ONCE)]
    for place, client in enumerate(clients):
        with contextlib.suppress(ConnectionError):  # the first may be gone already
            begin[place % len(begin)](client)
    waiting = set(clients)

    def all_are_cut_off() -> bool:
        assert service.request("GET", "/v1/links?limit=1")[0] == 200
        for client in list(waiting):
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                try:
                    ended = not client.recv(65_536)
                except ConnectionError:
                    ended = True
                if ended:
                    waiting.discard(client)
                    client.close()
        return not waiting

    wait_until(all_are_cut_off, explain=lambda: f"{len(waiting)} clients were not cut off")


def test_bodies_that_are_held_open_do_not_keep_the_service_from_ending(tmp_path):
    settings = {"FLOWCAST_BODY_SECONDS": "3600"}
    with running_service(f"sqlite:///{tmp_path}/flowcast.db", tmp_path, "--no-worker", **settings) as service:
        clients = [connect(service) for _ in range(2)]
        for client, path in zip(clients, (b"/v1/counts", b"/v1/import"), strict=True):
            client.sendall(POST.replace(b"/v1/counts", path).replace(b"Host:", b"Expect: 100-continue\r\nHost:"))
            assert client.recv(1000).startswith(b"HTTP/1.1 100")  # its body is awaited
            client.sendall(b"link_id")
        service.process.terminate()
        for client in clients:
            answer = rest(client)
            assert problem_in(answer)["status"] == 503
            assert b"retry-after" in answer.lower()
        service.process.wait(WAIT_SECONDS)
    assert "timeout graceful shutdown exceeded" not in service.log.read_text()
