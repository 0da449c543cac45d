"""Send one signed message to one address: no redirect, no proxy, no waiting for long."""

from __future__ import annotations

import hmac
import socket
import threading
import uuid
from base64 import b64decode
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import urlsplit

from standardwebhooks import Webhook

from app.core.errors import Conflict, FieldError

# Host and port, path and query; neither user info nor a fragment fits in.
URL_PATTERN = (
    r"^https?://([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9][0-9]{0,4})?"
    r"([/?][A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?$"
)
LONGEST_URL = 2000
USUAL_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """A URL taken apart, once: what was checked is what is connected to."""

    secure: bool
    host: str
    port: int
    target: str  # path and query

    @classmethod
    def of(cls, url: str) -> Address:
        """Take a URL apart that has the pattern."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme == "https", parts.hostname or "", parts.port or USUAL_PORTS[parts.scheme], target)

    def is_allowed(self, hosts: Collection[str]) -> bool:
        """Return whether it is among the hosts; one without a port allows the usual ones only."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == USUAL_PORTS["https" if self.secure else "http"]
        return f"{host}:{self.port}" in hosts or (usual and host in hosts)


def require_allowed(url: str, hosts: Collection[str]) -> None:
    """Refuse an address that was not allowed."""
    try:
        allowed = Address.of(url).is_allowed(hosts)
    except ValueError:  # a port or an IPv6 address that cannot be
        allowed = False
    if not allowed:
        rule = "must point to a host, and port, that FLOWCAST_WEBHOOK_HOSTS allows"
        raise Conflict(f"url={url[:100]!r} is refused; it {rule}", [FieldError("body.url", url[:100], rule)])


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
