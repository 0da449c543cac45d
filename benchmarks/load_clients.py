"""The clients of ``benchmarks.load``: feeds and readers in a process of their own, which tells how late it was itself.

One thread, plain sockets, no parsing beyond lengths: it shares the machine with the service it measures. A
question has a time at which it was meant to be sent, and its answer is timed from then on, so that a
service that stalls is charged for every question that had to wait.
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
GIVE_UP_SECONDS = 30.0  # after which a question without an answer is an error
NO_ANSWER = 0  # the status of a question that got none
GIVEN_UP = -1  # that of one which had waited too long for a connection, and was not sent
RETRIED = (429, 503)

Found = TypeVar("Found")


class Ask(NamedTuple):
    """A question, and when it is meant to be sent, in seconds from the beginning."""

    at: float
    kind: str
    request: bytes
    place: int = -1  # of a batch of counts among all; it goes over the connection of its feed, and again if refused


class Answer(NamedTuple):
    """What became of a question; times are in seconds from the beginning."""

    kind: str
    at: float
    sent: float
    came: float
    status: int
    place: int
    retry_after: bool = False

    @property
    def took(self) -> float:
        """Seconds from when it was meant to be sent."""
        return self.came - self.at


class Told(NamedTuple):
    """What the clients found, and what finding it cost them."""

    answers: list[Answer]
    seconds: float
    cpu_seconds: float
    lags: list[float]  # of questions that found a free connection: seconds between when they were due and sent
    began: float  # by the monotonic clock
    service_cpu_seconds: float  # of all the service's processes meanwhile


@dataclass
class _Line:
    """One keep-alive connection, with at most one question under way."""

    socket: socket.socket
    pool: _Pool
    asked: Ask | None = None
    sent: float = 0.0
    received: bytearray = field(default_factory=bytearray)


@dataclass
class _Pool:
    free: deque[_Line] = field(default_factory=deque)
    waiting: deque[Ask] = field(default_factory=deque)


class Clients:
    """Asks what it is given over a bounded number of connections."""

    def __init__(
        self, service: Running, lines: dict[str, int], feeds: int, lines_a_feed: int = 1, patience: float = math.inf
    ) -> None:
        self._service, self._patience = service, patience
        self._epoll = select.epoll()
        self._by_number: dict[int, _Line] = {}
        self._pools = {kind: _Pool() for kind in lines}
        self._feeds = [_Pool() for _ in range(feeds)]
        for kind, n in lines.items():
            for _ in range(n):
                self._connect(self._pools[kind])
        for pool in self._feeds:
            for _ in range(lines_a_feed):
                self._connect(pool)
        self._answers: list[Answer] = []
        self._lags: list[float] = []
        self._again: list[Ask] = []
        self._tag = b""
        self._started = 0.0

    def drive(self, asks: Iterable[Ask]) -> Told:
        """Send questions when they are due, and wait for the answers to all of them."""
        coming, costs = iter(asks), self._begin()
        following = next(coming, None)
        while following is not None or self._again or self._busy():
            now = self._now()
            while following is not None and following.at <= now:
                self._take(following, now)
                following = next(coming, None)
            while self._again and self._again[0].at <= now:
                self._take(heapq.heappop(self._again), now)
            due = [ask.at for ask in (following, *self._again[:1]) if ask is not None]
            self._wait(max(0.0, min(due) - self._now()) if due else 0.2)
        return self._told(self._now(), costs)

    def saturate(self, asks: Iterator[Ask], seconds: float) -> Told:
        """Ask the next question as soon as a connection is free: as much as can be served."""
        costs = self._begin()
        pools = [*self._pools.values(), *self._feeds]
        while (now := self._now()) < seconds:
            while any(pool.free for pool in self._pools.values()) and sum(len(pool.waiting) for pool in pools) < 64:
                self._take(next(asks)._replace(at=now), now)
            self._wait(0.2)
        took = self._now()
        while self._busy():
            self._wait(0.2)
        return self._told(took, costs)

    def close(self) -> None:
        """Hang up."""
        for line in self._by_number.values():
            line.socket.close()
        self._epoll.close()

    def _begin(self) -> tuple[float, float, float]:
        self._answers, self._lags, self._again = [], [], []
        self._started = time.perf_counter()
        return time.monotonic(), time.process_time(), self._service.cpu_seconds()

    def _told(self, seconds: float, costs: tuple[float, float, float]) -> Told:
        began, cpu, service_cpu = costs
        ours, theirs = time.process_time() - cpu, self._service.cpu_seconds() - service_cpu
        return Told(self._answers, seconds, ours, self._lags, began, theirs)

    def _now(self) -> float:
        return time.perf_counter() - self._started

    def _busy(self) -> bool:
        pools = (*self._pools.values(), *self._feeds)
        return any(pool.waiting for pool in pools) or any(line.asked is not None for line in self._by_number.values())

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
        line = _Line(opened, pool)
        self._by_number[opened.fileno()] = line
        self._epoll.register(opened.fileno(), select.EPOLLIN)
        pool.free.append(line)
        time.sleep(0.002)  # so that whichever process is idle takes it, and not one of them all

    def _take(self, ask: Ask, now: float) -> None:
        pool = self._pools[ask.kind] if ask.place < 0 else self._feeds[ask.place % len(self._feeds)]
        if not pool.free:
            pool.waiting.append(ask)
            return
        self._lags.append(now - ask.at)
        self._send(pool.free.popleft(), ask)

    def _send(self, line: _Line, ask: Ask) -> None:
        line.asked, line.sent = ask, self._now()
        request = ask.request
        if self._tag and request.startswith(b"GET /v1/forecasts"):
            request = request[:-2] + b"If-None-Match: " + self._tag + b"\r\n\r\n"
        try:
            sent = line.socket.send(request)
            if sent < len(request):  # a buffer of the kernel holds many times a batch; so this is rare
                line.socket.setblocking(True)
                line.socket.sendall(request[sent:])
                line.socket.setblocking(False)
        except OSError:
            self._lose(line)

    def _wait(self, seconds: float) -> None:
        # Through select, for epoll itself counts whole milliseconds.
        select.select([self._epoll.fileno()], [], [], seconds)
        for number, _ in self._epoll.poll(0):
            self._read(self._by_number[number])
        late = self._now() - GIVE_UP_SECONDS
        for line in [one for one in self._by_number.values() if one.asked is not None and one.sent < late]:
            self._lose(line)

    def _read(self, line: _Line) -> None:
        try:
            part = line.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._lose(line)
            return
        line.received += part
        end = line.received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(line.received[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        if len(line.received) >= end + 4 + length:
            self._note(line, int(head[9:12]), head)

    def _note(self, line: _Line, status: int, head: bytes) -> None:
        ask, line.asked = line.asked, None
        line.received.clear()
        assert ask is not None
        wait = int(head.split(b"retry-after:")[1].split(b"\r\n")[0]) if b"retry-after:" in head else None
        now = self._now()
        self._answers.append(Answer(ask.kind, ask.at, line.sent, now, status, ask.place, wait is not None))
        if b"etag:" in head:
            self._tag = head.split(b"etag:")[1].split(b"\r\n")[0].strip().replace(b'w/"', b'W/"')
        if ask.place >= 0 and status in RETRIED:  # counts are sent until they are taken
            heapq.heappush(self._again, ask._replace(at=now + (wait or 1)))
        self._next(line)

    def _next(self, line: _Line) -> None:
        while line.pool.waiting:
            ask = line.pool.waiting.popleft()
            if ask.place >= 0 or self._now() - ask.at < self._patience:  # counts are never given up
                self._send(line, ask)
                return
            self._answers.append(Answer(ask.kind, ask.at, ask.at, self._now(), GIVEN_UP, ask.place))
        line.pool.free.append(line)

    def _lose(self, line: _Line) -> None:
        """Take note of a question that got no answer, and connect anew."""
        number = line.socket.fileno()
        self._epoll.unregister(number)
        del self._by_number[number]
        line.socket.close()
        if line in line.pool.free:
            line.pool.free.remove(line)
        if line.asked is not None:
            ask = line.asked
            self._answers.append(Answer(ask.kind, ask.at, line.sent, self._now(), NO_ANSWER, ask.place))
        self._connect(line.pool)
        if line.pool.waiting and line.pool.free:
            self._send(line.pool.free.popleft(), line.pool.waiting.popleft())


def in_own_process(work: Callable[..., Found], *arguments: Any) -> Found:
    """Run clients in a process of their own, so that what measures is not measured, and give what they found."""
    # Not through multiprocessing, which would load all that the benchmark itself needs once more.
    command = [sys.executable, "-c", f"from {__name__} import run_piped; run_piped()"]
    done = subprocess.run(command, input=pickle.dumps((work, arguments)), stdout=subprocess.PIPE, check=True)
    found: Found = pickle.loads(done.stdout)
    return found


def run_piped() -> None:
    """Do the work that comes in, and give back what came of it."""
    # What measures should wait neither for what is measured, where it may go first, nor for its own collector.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    gc.disable()
    work, arguments = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(work(*arguments)))
