"""Server-sent events: frames written when something changed, and a sign of life when nothing did."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import NamedTuple

from fastapi import Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.core.database import UNREACHABLE
from app.http.media_types import JSON, chosen_type
from app.http.shedding import Shedding

EVENT_STREAM = "text/event-stream"
# How the document describes one event of a stream.
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
SIGN_OF_LIFE_SECONDS = 15.0


_leaving = threading.Event()


class Frame(NamedTuple):
    """One event: what happened, as JSON."""

    event: str
    data: str
    id: str | None = None

    def written(self) -> bytes:
        """Return the bytes of the event."""
        return format_sse_event(event=self.event, data_str=self.data, id=self.id)


Look = Callable[[Frame | None], tuple[list[Frame], bool]]
Stamp = Callable[[], object]


@contextmanager
def streams_end_on_signals() -> Iterator[None]:
    """End streams once the process is asked to stop: the server waits for every answer, and they have no end."""
    if threading.current_thread() is not threading.main_thread():  # as in tests: signals come to the main one
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def leave(number: int, frame: FrameType | None) -> None:
        _leaving.set()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number, handler in before.items():
        if callable(handler):  # the server's
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wants_stream(request: Request) -> bool:
    """Return whether a caller would rather have events."""
    return chosen_type(request, JSON, EVENT_STREAM) == EVENT_STREAM


def stream(request: Request, stamp: Stamp, look: Look, seconds: float) -> Response:
    """Answer with events; ``look`` is given the last frame sent and gives new ones, and whether that was all.

    It is called once, and again whenever ``stamp`` returns something else than before.
    The stream ends after so many seconds; a client connects again, as browsers do by themselves.
    """
    shedding: Shedding = request.app.state.shedding
    return EventStream(_frames(request, shedding, stamp, look, seconds), shedding)


class EventStream(StreamingResponse):
    """A stream of events, which takes one of the places for streams from its beginning to its end."""

    def __init__(self, frames: AsyncIterator[bytes], shedding: Shedding) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type=EVENT_STREAM, headers=headers)
        self._shedding = shedding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, or refuse the stream before anything of it is sent."""
        with self._shedding.place("events"):
            await super().__call__(scope, receive, send)


async def _frames(
    request: Request, shedding: Shedding, stamp: Stamp, look: Look, seconds: float
) -> AsyncIterator[bytes]:
    seen: object = object()
    last: Frame | None = None
    spoken = monotonic()
    until = spoken + seconds
    while not _leaving.is_set() and not await request.is_disconnected():
        now = stamp()
        if now != seen:
            try:
                frames, over = await shedding.run_in_lane("events", look, last)
                seen = now
            except UNREACHABLE:  # the stream goes on when the database does
                frames, over = [], False
            for frame in frames:
                yield frame.written()
                last, spoken = frame, monotonic()
            if over:
                return
        if monotonic() - spoken > SIGN_OF_LIFE_SECONDS:
            yield KEEPALIVE_COMMENT
            spoken = monotonic()
        if monotonic() + LOOK_SECONDS > until:
            return
        await asyncio.sleep(LOOK_SECONDS)
