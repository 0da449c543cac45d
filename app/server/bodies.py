"""Request bodies: bounded in size and time, each and all together, and decompressed."""

from __future__ import annotations

import asyncio
import zlib
from time import monotonic

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from app.core.errors import Invalid, Problem, ProblemType, TooLarge, UnsupportedMediaType
from app.http.shedding import Shedding
from app.settings import Settings

PART = 1 << 20  # bytes unpacked at a time
LEAST_RATE = 4096  # bytes a second that excuse a body, or the reader of an answer, for taking long
GZIP = 16 + zlib.MAX_WBITS
PLAIN, PACKED = ("", "identity"), ("gzip", "x-gzip")
IMPORT_PATH, COUNTS_PATH, LINKS_PATH = "/v1/import", "/v1/counts", "/v1/links"
LINKS_BODY = 8 << 20  # bytes; 10,000 links with ten points each are 5 MB
SMALL_BODY = 1 << 20  # bytes, of all other calls; the errors of a bad body take hundreds of times its size
MOST_DIGITS = 20  # of a length; Python refuses to read very long numbers


class TooSlow(Problem):
    """A body that is received too slowly."""

    problem_type = ProblemType.TOO_SLOW
    title = "The body did not come"


class Body:
    """A request's body while it is received: bounded in size and time, and decompressed if it is gzip."""

    def __init__(
        self,
        receive: Receive,
        limit: int,
        *,
        seconds: float,
        unpacking: CapacityLimiter | None = None,
        shedding: Shedding | None = None,
    ) -> None:
        self._receive, self._limit, self._seconds = receive, limit, seconds
        self._unpacking = unpacking  # threads to unpack in; None where the body is not packed
        self._shedding, self._held = shedding, 0  # None where parts are not kept in memory
        self._unpacker = None if unpacking is None else zlib.decompressobj(GZIP)
        self._packed: bytes | None = None  # bytes to unpack next; empty where only the unpacker itself holds some
        self._size = 0  # bytes, unpacked
        self._sent = 0  # bytes as the client sent them
        self._waited = 0.0  # seconds for the client alone, without the handling of parts
        self._is_last = self._is_whole = False

    async def receive(self) -> Message:
        """Return the next part; refuse a body that is too slow or too large, or is not valid gzip."""
        if self._is_whole:  # only the end of the connection can follow, whenever that may be
            return await self._receive()
        if self._packed is None:
            message = await self._next()
            if message["type"] != "http.request":
                return message
            self._is_last = not message.get("more_body", False)
            part = message.get("body", b"")
        else:
            part, self._packed = self._packed, None
        # In a thread, because 30 kB may unpack to 30 MB, which takes a tenth of a second.
        body = part if self._unpacker is None else await run_sync(self._unpacked, part, limiter=self._unpacking)
        self._size += len(body)
        if self._size > self._limit:
            raise _too_large(self._limit)
        if self._shedding is not None:
            self._shedding.hold(len(body))
            self._held += len(body)
        self._is_whole = self._is_last and self._packed is None
        if self._is_whole and self._unpacker is not None and not self._unpacker.eof and self._size:
            raise Invalid.field("body", "", "must be whole; the gzip stream ends too early")
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    def release(self) -> None:
        """Free what was held of the body; called when the request is over, however it ended."""
        if self._shedding is not None:
            self._shedding.release(self._held)

    async def _next(self) -> Message:
        # A least rate instead of a fixed total, because large files may come over slow lines.
        left = min(self._seconds, self._seconds + self._sent / LEAST_RATE - self._waited)
        began = monotonic()
        try:
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            detail = (
                f"the body kept the service waiting for {self._seconds:g} s; it must come, at {LEAST_RATE >> 10} kB/s"
            )
            raise TooSlow(detail, headers={"Connection": "close"}) from None
        self._waited += monotonic() - began
        self._sent += len(message.get("body", b""))
        return message

    def _unpacked(self, part: bytes) -> bytes:
        assert self._unpacker is not None
        if self._unpacker.eof and part:  # gzip files may be joined end to end
            self._unpacker = zlib.decompressobj(GZIP)
        try:
            body = self._unpacker.decompress(part, PART)
        except zlib.error:
            raise Invalid.field("body", "", "must match its Content-Encoding, gzip") from None
        left = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        self._packed = left or (b"" if len(body) == PART else None)
        return body


class BodyLimits:
    """The largest body of each call, and what bounds all bodies together."""

    def __init__(self, settings: Settings, shedding: Shedding) -> None:
        self._shedding, self._seconds = shedding, settings.body_seconds
        largest = settings.max_body_megabytes << 20
        self._limits = {
            IMPORT_PATH: settings.max_import_megabytes << 20,
            COUNTS_PATH: largest,
            LINKS_PATH: min(largest, LINKS_BODY),
        }
        self._unpacking = CapacityLimiter(1)  # bodies at a time, part by part

    def bounded(self, scope: Scope, path: str, receive: Receive) -> Body | None:
        """Return the bounded body of a request, None without one; refuse one that is announced to be past its limit."""
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if length == "0" and "transfer-encoding" not in headers:
            return None
        limit = self._limits.get(path, SMALL_BODY)
        if length.isdigit() and len(length) < MOST_DIGITS and int(length) > limit:
            raise _too_large(limit)
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in PLAIN + PACKED:
            detail = f"Content-Encoding={encoding!r} is refused; it must be gzip or identity"
            raise UnsupportedMediaType(detail, headers={"Accept-Encoding": "gzip, identity"})
        unpacking = None
        if encoding in PACKED:
            unpacking = self._unpacking
            packed = (b"content-encoding", b"content-length")
            scope["headers"] = [header for header in scope["headers"] if header[0] not in packed]
        shedding = None if path == IMPORT_PATH else self._shedding  # an import's parts go to disk
        return Body(receive, limit, seconds=self._seconds, unpacking=unpacking, shedding=shedding)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit >> 20} MB, the most that this call accepts")
