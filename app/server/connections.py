"""Limits on connections: how long a client may keep one, and how much it may send before a body.

uvicorn bounds neither the length of a request's head nor the time that it takes, reads on after a response, and keeps
what a client does not read. Each of these would let a client without a key occupy a connection. All connections are
checked once a second, because a timer for each would cost every request time.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, NamedTuple, cast
from weakref import WeakSet

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.core.errors import Problem
from app.http.problems import problem_response
from app.server.bodies import LEAST_RATE
from app.settings import Settings

log = logging.getLogger("flowcast.connections")

LOOK_SECONDS = 1.0
END_SECONDS = 3.0  # that a body may still take to come once the service ends
ENDING = "the service stopped before the body had arrived; nothing of it was stored, so send it again"
LONGEST_HEAD = 65_536  # bytes of a request's line and headers; browsers and proxies send a few thousand
LONGEST_CHUNK_SIZE = 24  # bytes that announce and end a chunk
NO_SCOPE = {"path": ""}


class Unread(NamedTuple):
    """Bytes of an answer that a client had not read at some time."""

    since: float
    size: int


def patient_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Return the protocol class that uvicorn instantiates for each connection, with the limits of the settings."""
    # uvicorn only calls it. A partial, because it must be pickled for the processes that serve.
    make = partial(PatientProtocol, head_seconds=settings.header_seconds, body_seconds=settings.body_seconds)
    return cast("type[asyncio.Protocol]", make)


class PatientProtocol(HttpToolsProtocol):
    """A connection that is closed when its client keeps it without using it."""

    def __init__(self, *, head_seconds: float, body_seconds: float, server_state: ServerState, **others: Any) -> None:
        super().__init__(server_state=server_state, **others)
        self._head_seconds = head_seconds  # that a request's head may take
        self._body_seconds = body_seconds  # that a client may leave an answer unread
        self._state = server_state
        self._head_since: float | None = None  # while a request's head is awaited
        self._came = 0  # bytes since then
        self._chunk = 0  # bytes being read just now
        self._too_long = False
        self._body_open = False
        self._wrapping = 0  # bytes around the parts of a body: sizes of chunks, trailers
        self._rest_since: float | None = None  # while the body of a request comes that was answered already
        self._unread: Unread | None = None
        self._ending_since: float | None = None  # since the server began to end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        self._head_since = self.loop.time()
        _watch(self._state, self.loop)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and refuse a head that grows beyond its bound."""
        awaited = self._head_since
        self._chunk = len(data)
        self._wrapping += len(data)
        super().data_received(data)
        if self._head_since is None:
            if self._body_open and self._wrapping > LONGEST_HEAD:
                self._refuse(431, f"the body came with more than {LONGEST_HEAD >> 10} kB around it")
            elif self._is_idle() and not self._body_open and self.timeout_keep_alive_task is None:
                self._head_since, self._came = self.loop.time(), len(data)  # such as line ends, which begin no request
            return
        if awaited is self._head_since:  # else most of these bytes belong to the request before this one
            self._came += len(data)
        if self._came > LONGEST_HEAD:
            self._refuse(431, f"the request's line and headers are longer than {LONGEST_HEAD >> 10} kB")

    def on_message_begin(self) -> None:
        """Record that a head begins."""
        super().on_message_begin()
        if self._head_since is None:
            self._head_since, self._came = self.loop.time(), 1

    def on_headers_complete(self) -> None:
        """Record that a head is complete, and refuse one that was received at once and is too long."""
        if self._came + self._chunk > LONGEST_HEAD:  # what came may be a short head and much of a body
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > LONGEST_HEAD:
                self._too_long = True
                raise ValueError("the head is too long")
        self._head_since, self._came = None, 0
        self._body_open, self._rest_since, self._wrapping = True, None, 0
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; ignore those after the body, which are not expected and could contradict the others."""
        if not self._body_open:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self._wrapping -= len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Allow for the size of a chunk."""
        self._wrapping -= LONGEST_CHUNK_SIZE

    def on_message_complete(self) -> None:
        """Record that a request is complete."""
        self._body_open = False
        super().on_message_complete()

    def resume_writing(self) -> None:
        """Record that the client reads."""
        self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Send a problem, as for every error, if the bytes are not HTTP."""
        if self._too_long:
            self._refuse(431, f"the request's line and headers are longer than {LONGEST_HEAD >> 10} kB")
        else:
            self._refuse(400, "this is not an HTTP request")

    def shutdown(self) -> None:
        """Start the shutdown: finish requests under way, but wait only shortly for a body that is still received."""
        self._ending_since = self.loop.time()
        super().shutdown()

    def look(self, now: float) -> None:
        """End the connection if its client keeps it without using it."""
        if self._ending_since is not None and self._body_open and now - self._ending_since > END_SECONDS:
            self._cut("a body that was still arriving when the service stopped", 503, ENDING)
        elif self._head_since is not None and now - self._head_since > self._head_seconds:
            late = f"no complete request arrived within {self._head_seconds:g} s"
            self._cut("a request line and headers that did not arrive", 408 if self._came else None, late)
        elif self._body_open and self._is_idle():
            self._rest_since = now if self._rest_since is None else self._rest_since
            if now - self._rest_since > self._head_seconds:
                self._cut("the rest of a body that was refused")
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._unread = None
        elif self._unread is None:
            self._unread = Unread(now, unsent)
        elif (waited := now - self._unread.since) > self._body_seconds:
            if self._unread.size - unsent < waited * LEAST_RATE:
                self._cut("an answer that is not read", abort=True)
            self._unread = Unread(now, unsent)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _cut(self, why: str, status: int | None = None, detail: str = "", *, abort: bool = False) -> None:
        log.info(
            "the connection of a slow client was closed",
            extra={"reason": why, "client": self.client[0] if self.client else ""},
        )
        self._head_since = None
        if status is not None:
            self._refuse(status, detail)
        elif abort:
            self.transport.abort()
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Send the reason, unless a response has begun, and close the connection."""
        self._head_since = None
        under_way = self.pipeline or (self.cycle and self.cycle.response_started and not self.cycle.response_complete)
        if not under_way and not self.transport.is_closing():
            problem = Problem.with_status(status, detail, {"Connection": "close"})
            answer = problem_response(NO_SCOPE, problem)
            lines = [
                f"HTTP/1.1 {status} {problem.title}".encode(),
                *(name + b": " + value for name, value in answer.raw_headers),
            ]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()


_watched: WeakSet[ServerState] = WeakSet()


def _watch(state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
    """Check all connections of a server once a second, as long as it has any."""
    if state in _watched:
        return

    def look() -> None:
        now = loop.time()
        for connection in list(state.connections):
            cast(PatientProtocol, connection).look(now)
        if state.connections:
            loop.call_later(LOOK_SECONDS, look)
        else:
            _watched.discard(state)

    _watched.add(state)
    loop.call_later(LOOK_SECONDS, look)
