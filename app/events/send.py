"""Send one signed message to one address: no redirect, no proxy, no waiting for long."""

from __future__ import annotations

import hmac
import socket
import threading
import uuid
from contextlib import suppress
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version

from app.events.addresses import Address

TIMEOUT_SECONDS = 5.0
AGENT = f"flowcast/{version('flowcast')}"


class NotDelivered(Exception):
    """An address that did not take a message."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Give the signature of a message, by which its receiver knows that it is ours and not an old one."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, "sha256").hexdigest()


def send(address: Address, secret: str, event: str, body: bytes, now: datetime) -> None:
    """Post a message; anything but a 2xx is told by ``NotDelivered``."""
    timestamp = str(int(now.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": AGENT,
        "Connection": "close",
        "X-Flowcast-Event": event,
        "X-Flowcast-Delivery": str(uuid.uuid4()),
        "X-Flowcast-Timestamp": timestamp,
        "X-Flowcast-Signature": sign(secret, timestamp, body),
    }
    try:
        status = _post(address, body, headers)
    except (OSError, HTTPException, ValueError) as problem:
        raise NotDelivered(_reason(problem)) from None
    if not 200 <= status < 300:
        followed = "; redirects are not followed" if 300 <= status < 400 else ""
        raise NotDelivered(f"it answered {status}{followed}")


def _post(address: Address, body: bytes, headers: dict[str, str]) -> int:
    kind = HTTPSConnection if address.secure else HTTPConnection
    connection = kind(address.host, address.port, timeout=TIMEOUT_SECONDS)
    connection.connect()
    # The timeout above is for each part of an answer; one that comes drop by drop is cut off by this.
    cut_off = threading.Timer(TIMEOUT_SECONDS, _cut, (connection.sock,))
    cut_off.daemon = True
    cut_off.start()
    try:
        connection.request("POST", address.target, body, headers)
        return connection.getresponse().status
    finally:
        cut_off.cancel()
        connection.close()


def _cut(sock: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # past TLS, which another thread is in the middle of


def _reason(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return f"it did not answer within {TIMEOUT_SECONDS:.0f} s"
    return f"{type(problem).__name__}: {getattr(problem, 'strerror', None) or problem}"[:200]
