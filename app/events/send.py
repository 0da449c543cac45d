"""Send one signed message to one address: no redirect, no proxy, no waiting for long."""

from __future__ import annotations

import hmac
import socket
import threading
import uuid
from base64 import b64decode
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version

from standardwebhooks import Webhook

from app.events.addresses import Address

TIMEOUT_SECONDS = 5.0
SECRET_PREFIX = "whsec_"  # nosec B105 # of secrets as Standard Webhooks writes them
AGENT = f"flowcast/{version('flowcast')}"


class NotDelivered(Exception):
    """An address that did not take a message."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the deprecated signature of a message, of ``X-Flowcast-Signature``."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, "sha256").hexdigest()


def signing_key(secret: str) -> bytes:
    """Return the key of a secret: what follows ``whsec_`` decoded from base64, or the secret's own characters."""
    if secret.startswith(SECRET_PREFIX):
        with suppress(ValueError):
            return b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return secret.encode()


def signed_headers(secret: str, message_id: str, event_type: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a message: those of Standard Webhooks, and the deprecated ones of Flowcast."""
    now = now.astimezone(UTC)
    timestamp = str(int(now.timestamp()))
    return {
        "Content-Type": "application/json",
        "User-Agent": AGENT,
        "Connection": "close",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": Webhook(signing_key(secret)).sign(message_id, now, body.decode()),
        "X-Flowcast-Event": f"{event_type}s",
        "X-Flowcast-Delivery": str(uuid.uuid4()),
        "X-Flowcast-Timestamp": timestamp,
        "X-Flowcast-Signature": sign(secret, timestamp, body),
    }


def send(address: Address, headers: dict[str, str], body: bytes) -> None:
    """Post a message; raise ``NotDelivered`` for any answer but 2xx."""
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
