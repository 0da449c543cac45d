"""Send one signed message to one address: no redirect, no proxy, and within a few seconds."""

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
from urllib.parse import urlsplit

from standardwebhooks import Webhook

from app.core.errors import Conflict, FieldError, ProblemType, worded

# Host and port, path and query; neither user info nor a fragment fits in.
URL_PATTERN = worded(
    r"^https?://([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9][0-9]{0,4})?"
    r"([/?][A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?$",
    "must be http or https, a host, and perhaps a port, a path and a query, without user info and fragment",
)
LONGEST_URL = 2000
CONNECTIONS: dict[str, type[HTTPConnection]] = {"http": HTTPConnection, "https": HTTPSConnection}
TIMEOUT_SECONDS = 5.0
SECRET_PREFIX = "whsec_"  # nosec B105 # of secrets as Standard Webhooks writes them
AGENT = f"flowcast/{version('flowcast')}"


class NotDelivered(Exception):
    """A message was not accepted by its address."""


def is_allowed(url: str, hosts: Collection[str]) -> bool:
    """Return whether a URL points to one of the hosts; one without a port allows the default ports only."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = CONNECTIONS[parts.scheme].default_port
    port = parts.port or default
    return f"{host}:{port}" in hosts or (port == default and host in hosts)


def require_allowed(url: str, hosts: Collection[str]) -> None:
    """Raise ``Conflict`` for a URL that points to a host or port that was not allowed."""
    try:
        allowed = is_allowed(url, hosts)
    except ValueError:  # a port or an IPv6 address that cannot be
        allowed = False
    if not allowed:
        rule = "must point to a host, and port, that FLOWCAST_WEBHOOK_HOSTS allows"
        raise Conflict(
            ProblemType.WEBHOOK_HOST, f"url={url[:100]!r} is refused; it {rule}", [FieldError("url", url[:100], rule)]
        )


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
    signature = hmac.new(secret.encode(), timestamp.encode() + b"." + body, "sha256").hexdigest()
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
        "X-Flowcast-Signature": f"sha256={signature}",
    }


def send(url: str, headers: dict[str, str], body: bytes) -> None:
    """Post a message; raise ``NotDelivered`` for any answer but 2xx."""
    try:
        status = _post(url, headers, body)
    except TimeoutError:
        raise NotDelivered(f"it did not answer within {TIMEOUT_SECONDS:.0f} s") from None
    except (OSError, HTTPException, ValueError) as problem:
        reason = f"{type(problem).__name__}: {getattr(problem, 'strerror', None) or problem}"
        raise NotDelivered(reason[:200]) from None
    if not 200 <= status < 300:
        followed = "; redirects are not followed" if 300 <= status < 400 else ""
        raise NotDelivered(f"it answered {status}{followed}")


def _post(url: str, headers: dict[str, str], body: bytes) -> int:
    parts = urlsplit(url)
    kind = CONNECTIONS[parts.scheme]
    connection = kind(parts.hostname or "", parts.port or kind.default_port, timeout=TIMEOUT_SECONDS)
    connection.connect()
    # The timeout above is for each part of an answer; one that comes drop by drop is cut off by this.
    cut_off = threading.Timer(TIMEOUT_SECONDS, _cut, (connection.sock,))
    cut_off.daemon = True
    cut_off.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        cut_off.cancel()
        connection.close()


def _cut(sock: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # past TLS, which another thread is in the middle of
