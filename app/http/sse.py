"""Server-sent events: events when something changed, and a keep-alive comment when nothing did."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple

from fastapi import Request
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.core.database import UNREACHABLE
from app.http.shedding import Shedding

EVENT_STREAM = "text/event-stream"
EVENT_SCHEMA = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string"},
        "data": {"type": "string", "description": "JSON"},
        "id": {"type": "string", "description": "To be sent as `Last-Event-ID` when the stream is resumed"},
    },
}
LOOK_SECONDS = 0.2
KEEPALIVE_SECONDS = 15.0

_ending = threading.Event()


def event_content(event: str, data: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """Document an answer as a stream of events with one of them, for ``responses=`` of a route."""
    example = {"event": event, "data": json.dumps(data)} | more
    return {EVENT_STREAM: {"schema": EVENT_SCHEMA, "example": example}}


class Frame(NamedTuple):
    """One event: what happened, as JSON."""

    event: str
    data: str
    id: str | None = None


Look = Callable[[Frame | None], tuple[list[Frame], bool]]


@contextmanager
def streams_end_on_signals() -> Iterator[None]:
    """End streams when the process receives a signal to stop: the server waits for every answer."""
    if threading.current_thread() is not threading.main_thread():  # as in tests: only the main one receives signals
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end_streams(number: int, frame: FrameType | None) -> None:
        _ending.set()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number, handler in before.items():
        if callable(handler):  # the server's
            signal.signal(number, end_streams)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class EventStream(StreamingResponse):
    """A response of events; it occupies one of the places for streams.

    ``look`` is called with the last frame sent, and returns the new ones and whether they end the stream. It is called
    once, and again whenever ``version`` returns another value than before. The stream ends after some seconds; clients
    connect again, which browsers do without a script.
    """

    def __init__(self, request: Request, version: Callable[[], object], look: Look, seconds: float) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        self._shedding: Shedding = request.app.state.shedding
        super().__init__(self._frames(request, version, look, seconds), media_type=EVENT_STREAM, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, or refuse the stream before anything of it is sent."""
        with self._shedding.place("events"):
            await super().__call__(scope, receive, send)

    async def _frames(
        self, request: Request, version: Callable[[], object], look: Look, seconds: float
    ) -> AsyncIterator[bytes]:
        seen: object = object()
        last: Frame | None = None
        sent_at = monotonic()
        until = sent_at + seconds
        while not _ending.is_set() and not await request.is_disconnected():
            now = version()
            if now != seen:
                try:
                    frames, over = await self._shedding.run_in_lane("events", look, last)
                    seen = now
                except UNREACHABLE:  # the stream goes on when the database can be used again
                    frames, over = [], False
                for frame in frames:
                    yield format_sse_event(event=frame.event, data_str=frame.data, id=frame.id)
                    last, sent_at = frame, monotonic()
                if over:
                    return
            if monotonic() - sent_at > KEEPALIVE_SECONDS:
                yield KEEPALIVE_COMMENT
                sent_at = monotonic()
            if monotonic() + LOOK_SECONDS > until:
                return
            await asyncio.sleep(LOOK_SECONDS)
