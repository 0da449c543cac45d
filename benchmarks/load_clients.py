"""The clients of ``benchmarks.load``: feeds and readers in a separate process, which measures its own lag too.

One thread, plain sockets and no parsing beyond lengths, because it shares the machine with the service. A
response is timed from when its request was due, so that the times include requests that had to wait while
the service stalled.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import math
import os
import pickle
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from benchmarks.running_service import Running

CONNECT_SECONDS = 10.0
GIVE_UP_SECONDS = 30.0  # after which a request without a response is an error
NO_ANSWER = 0  # the status of a request without a response
NOT_SENT = -1  # the status of a request that waited too long for a connection
RETRIED = (429, 503)

Found = TypeVar("Found")


class PlannedRequest(NamedTuple):
    """A request, and when it is due, in seconds from the beginning."""

    due: float
    kind: str
    request: bytes
    batch: int = -1  # number of a batch of counts, which is sent over its feed's connection, and again if refused


class Response(NamedTuple):
    """The outcome of a request; times are in seconds from the beginning."""

    kind: str
    due: float
    sent_at: float
    received_at: float
    status: int
    batch: int
    retry_after: bool = False

    @property
    def latency(self) -> float:
        """Return the seconds from when the request was due."""
        return self.received_at - self.due


class ClientResults(NamedTuple):
    """The responses that clients received, and the CPU time of clients and service."""

    responses: list[Response]
    seconds: float
    cpu_seconds: float
    lags: list[float]  # of requests with a free connection: seconds between when they were due and sent
    began: float  # by the monotonic clock
    service_cpu_seconds: float  # of all the service's processes meanwhile


@dataclass
class _Connection:
    """One keep-alive connection, with at most one request in flight."""

    socket: socket.socket
    pool: _Pool
    in_flight: PlannedRequest | None = None
    sent_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)


@dataclass
class _Pool:
    free: deque[_Connection] = field(default_factory=deque)
    waiting: deque[PlannedRequest] = field(default_factory=deque)


class Clients:
    """Sends requests over a bounded number of connections."""

    def __init__(
        self,
        service: Running,
        connections: dict[str, int],
        feeds: int,
        connections_per_feed: int = 1,
        patience: float = math.inf,
    ) -> None:
        self._service, self._patience = service, patience
        self._epoll = select.epoll()
        self._by_number: dict[int, _Connection] = {}
        self._pools = {kind: _Pool() for kind in connections}
        self._feeds = [_Pool() for _ in range(feeds)]
        for kind, n in connections.items():
            for _ in range(n):
                self._connect(self._pools[kind])
        for pool in self._feeds:
            for _ in range(connections_per_feed):
                self._connect(pool)
        self._responses: list[Response] = []
        self._lags: list[float] = []
        self._retries: list[PlannedRequest] = []
        self._etag = b""
        self._started = 0.0

    def drive(self, requests: Iterable[PlannedRequest]) -> ClientResults:
        """Send requests when they are due, and wait for all responses."""
        remaining_requests, costs = iter(requests), self._begin()
        next_request = next(remaining_requests, None)
        while next_request is not None or self._retries or self._busy():
            now = self._now()
            while next_request is not None and next_request.due <= now:
                self._dispatch(next_request, now)
                next_request = next(remaining_requests, None)
            while self._retries and self._retries[0].due <= now:
                self._dispatch(heapq.heappop(self._retries), now)
            due = [planned.due for planned in (next_request, *self._retries[:1]) if planned is not None]
            self._wait(max(0.0, min(due) - self._now()) if due else 0.2)
        return self._results(self._now(), costs)

    def saturate(self, requests: Iterator[PlannedRequest], seconds: float) -> ClientResults:
        """Send the next request as soon as a connection is free, to measure the capacity."""
        costs = self._begin()
        pools = [*self._pools.values(), *self._feeds]
        while (now := self._now()) < seconds:
            while any(pool.free for pool in self._pools.values()) and sum(len(pool.waiting) for pool in pools) < 64:
                self._dispatch(next(requests)._replace(due=now), now)
            self._wait(0.2)
        elapsed = self._now()
        while self._busy():
            self._wait(0.2)
        return self._results(elapsed, costs)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._by_number.values():
            connection.socket.close()
        self._epoll.close()

    def _begin(self) -> tuple[float, float, float]:
        self._responses, self._lags, self._retries = [], [], []
        self._started = time.perf_counter()
        return time.monotonic(), time.process_time(), self._service.cpu_seconds()

    def _results(self, seconds: float, costs: tuple[float, float, float]) -> ClientResults:
        began, cpu, service_cpu = costs
        ours, theirs = time.process_time() - cpu, self._service.cpu_seconds() - service_cpu
        return ClientResults(self._responses, seconds, ours, self._lags, began, theirs)

    def _now(self) -> float:
        return time.perf_counter() - self._started

    def _busy(self) -> bool:
        pools = (*self._pools.values(), *self._feeds)
        return any(pool.waiting for pool in pools) or any(
            connection.in_flight is not None for connection in self._by_number.values()
        )

    def _connect(self, pool: _Pool) -> None:
        until = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                opened = socket.create_connection(("127.0.0.1", self._service.port), timeout=CONNECT_SECONDS)
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setblocking(False)
        connection = _Connection(opened, pool)
        self._by_number[opened.fileno()] = connection
        self._epoll.register(opened.fileno(), select.EPOLLIN)
        pool.free.append(connection)
        time.sleep(0.002)  # so that idle processes accept connections, and not one process all of them

    def _dispatch(self, planned: PlannedRequest, now: float) -> None:
        pool = self._pools[planned.kind] if planned.batch < 0 else self._feeds[planned.batch % len(self._feeds)]
        if not pool.free:
            pool.waiting.append(planned)
            return
        self._lags.append(now - planned.due)
        self._send(pool.free.popleft(), planned)

    def _send(self, connection: _Connection, planned: PlannedRequest) -> None:
        connection.in_flight, connection.sent_at = planned, self._now()
        request = planned.request
        if self._etag and request.startswith(b"GET /v1/forecasts"):
            request = request[:-2] + b"If-None-Match: " + self._etag + b"\r\n\r\n"
        try:
            n_sent = connection.socket.send(request)
            if n_sent < len(request):  # rare, because the kernel's buffer is much larger than a batch
                connection.socket.setblocking(True)
                connection.socket.sendall(request[n_sent:])
                connection.socket.setblocking(False)
        except OSError:
            self._reconnect(connection)

    def _wait(self, seconds: float) -> None:
        # By select, because epoll has a resolution of milliseconds.
        select.select([self._epoll.fileno()], [], [], seconds)
        for number, _ in self._epoll.poll(0):
            self._read(self._by_number[number])
        late = self._now() - GIVE_UP_SECONDS
        for connection in [one for one in self._by_number.values() if one.in_flight is not None and one.sent_at < late]:
            self._reconnect(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            part = connection.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._reconnect(connection)
            return
        connection.received += part
        end = connection.received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(connection.received[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        if len(connection.received) >= end + 4 + length:
            self._record(connection, int(head[9:12]), head)

    def _record(self, connection: _Connection, status: int, head: bytes) -> None:
        planned, connection.in_flight = connection.in_flight, None
        connection.received.clear()
        assert planned is not None
        wait = int(head.split(b"retry-after:")[1].split(b"\r\n")[0]) if b"retry-after:" in head else None
        now = self._now()
        self._responses.append(
            Response(planned.kind, planned.due, connection.sent_at, now, status, planned.batch, wait is not None)
        )
        if b"etag:" in head:
            self._etag = head.split(b"etag:")[1].split(b"\r\n")[0].strip().replace(b'w/"', b'W/"')
        if planned.batch >= 0 and status in RETRIED:  # counts are sent until they are accepted
            heapq.heappush(self._retries, planned._replace(due=now + (wait or 1)))
        self._next(connection)

    def _next(self, connection: _Connection) -> None:
        while connection.pool.waiting:
            planned = connection.pool.waiting.popleft()
            if planned.batch >= 0 or self._now() - planned.due < self._patience:  # counts are never given up
                self._send(connection, planned)
                return
            self._responses.append(
                Response(planned.kind, planned.due, planned.due, self._now(), NOT_SENT, planned.batch)
            )
        connection.pool.free.append(connection)

    def _reconnect(self, connection: _Connection) -> None:
        """Record that a request got no response, and open a new connection."""
        number = connection.socket.fileno()
        self._epoll.unregister(number)
        del self._by_number[number]
        connection.socket.close()
        if connection in connection.pool.free:
            connection.pool.free.remove(connection)
        if connection.in_flight is not None:
            planned = connection.in_flight
            self._responses.append(
                Response(planned.kind, planned.due, connection.sent_at, self._now(), NO_ANSWER, planned.batch)
            )
        self._connect(connection.pool)
        if connection.pool.waiting and connection.pool.free:
            self._send(connection.pool.free.popleft(), connection.pool.waiting.popleft())


def run_in_process(work: Callable[..., Found], *arguments: Any) -> Found:
    """Run clients in a separate process, so that they do not share the benchmark's own, and return their result."""
    # Not by multiprocessing, which would import the benchmark's modules again.
    command = [sys.executable, "-c", f"from {__name__} import {run_from_stdin.__name__}; {run_from_stdin.__name__}()"]
    done = subprocess.run(command, input=pickle.dumps((work, arguments)), stdout=subprocess.PIPE, check=True)
    found: Found = pickle.loads(done.stdout)
    return found


def run_from_stdin() -> None:
    """Run the pickled function from standard input and write its pickled result to standard output."""
    # The clients should wait neither for the service, if priorities may be raised, nor for their garbage collector.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    gc.disable()
    work, arguments = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(work(*arguments)))
