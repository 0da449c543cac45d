"""Answers, packed for clients that can unpack them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.types import Message

LEAST_BYTES = 1024
LEVEL = 4  # half the time of the usual 6, for a twentieth more bytes
LONG = 128 * 1024  # bytes; longer parts are packed in a thread
PACKABLE = (b"application/json", b"application/problem+json", b"application/geo+json", b"application/javascript")

Headers = list[tuple[bytes, bytes]]


def worth_packing(content_type: bytes, length: int | None) -> bool:
    """Tell whether packing an answer saves anything; a stream of events must not be held back."""
    if length is not None and length < LEAST_BYTES:
        return False
    kind = content_type.partition(b";")[0].strip()
    return kind in PACKABLE or (kind.startswith(b"text/") and kind != b"text/event-stream")


class Packed:
    """An answer on its way out through gzip."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._start: Message | None = None

    def begin(self, message: Message) -> None:
        """Hold the start of the answer until the length is known."""
        self._start = message

    async def send(self, message: Message) -> Sequence[Message]:
        """Pack one part; gives what may be sent now."""
        body, more = message.get("body", b""), message.get("more_body", False)
        packed = self._pack(body, more) if len(body) < LONG else await run_in_threadpool(self._pack, body, more)
        part = {"type": "http.response.body", "body": packed, "more_body": more}
        if self._start is None:
            return (part,)
        start, self._start = self._start, None
        headers: Headers = [header for header in start["headers"] if header[0] != b"content-length"]
        headers.append((b"content-encoding", b"gzip"))
        if not more:
            headers.append((b"content-length", str(len(packed)).encode()))
        return ({**start, "headers": headers}, part)

    def _pack(self, body: bytes, more: bool) -> bytes:
        return self._packer.compress(body) + self._packer.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)
