"""A minimal HTTP client for benchmarks: keep-alive connections and no parsing beyond lengths.

A full client would be slower than the service that it measures.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Connection:
    """One keep-alive connection."""

    host: str
    port: int
    _socket: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._socket = socket.create_connection((self.host, self.port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return status and body."""
        self._socket.sendall(request)
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        head = bytes(received[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        while len(received) < end + 4 + length:
            received += self._more()
        return int(head[9:12]), bytes(received[end + 4 : end + 4 + length])

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _more(self) -> bytes:
        if not (part := self._socket.recv(1 << 20)):
            raise ConnectionError("the service closed the connection")
        return part


def request(method: str, path: str, key: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
    """Return a request as bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n"
    if body:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def throughput(host: str, port: int, requests: Sequence[bytes], seconds: float, connections: int = 8) -> float:
    """Send requests in turn over several connections; return responses per second, all of which must be 200."""
    until = time.perf_counter() + seconds
    answered = [0] * connections
    problems: list[str] = []

    def send(i: int) -> None:
        connection = Connection(host, port)
        n = i
        while time.perf_counter() < until:
            status, body = connection.send(requests[n % len(requests)])
            if status != 200:
                problems.append(f"{status}: {body[:200]!r}")
                break
            answered[i] += 1
            n += 1
        connection.close()

    started = time.perf_counter()
    threads = [threading.Thread(target=send, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise RuntimeError(problems[0])
    return sum(answered) / (time.perf_counter() - started)
