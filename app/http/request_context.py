"""One request and its answer, as they pass the edge."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from itertools import count

from starlette.types import Message, Scope, Send

from app.http.route_paths import route_path

REQUEST_ID = "flowcast.request_id"
SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
NO_GZIP = re.compile(rb"gzip\s*;\s*q=0(\.0*)?\s*(,|$)")  # GZipMiddleware does not read qualities
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]
POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")
HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")


Audit = Callable[["Exchange"], Awaitable[None]]
ADMIN_CALL = "flowcast.admin_call"
CALLER = "flowcast.caller"
SENT_KEY = "flowcast.sent_key"
BEARER = b"bearer "


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_answers_head", "_audit", "_ended", "_send", "client", "encoding", "has_body",
        "key", "length", "method", "path", "request_id", "scope", "sent", "status",
    )  # fmt: skip

    def __init__(self, scope: Scope, send: Send, id_prefix: str, ids: count[int], audit: Audit) -> None:
        self._send, self._audit = send, audit
        self.status = self.sent = 0
        self.method: str = scope["method"]
        self._answers_head, self._ended = self.method == "HEAD", False
        # A copy, for whoever sends the answer must still know that no body is wanted.
        self.scope: Scope = {**scope, "method": "GET"} if self._answers_head else scope
        self.client = scope["client"][0] if scope["client"] else ""
        self.path = route_path(scope)
        self.request_id = ""
        self._read_headers(scope["headers"])
        if not self.request_id:
            self.request_id = f"{id_prefix}{next(ids):06x}"
        self.scope[REQUEST_ID] = scope[REQUEST_ID] = self.request_id
        self.scope[SENT_KEY] = self.key

    def _read_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.encoding, self.length, self.key, self.has_body = b"", None, None, False
        bearer = None
        for name, value in headers:
            if name == b"x-api-key":
                if self.key is None:  # of several the first, as everywhere
                    self.key = value.decode("latin-1")
            elif name == b"authorization":
                if bearer is None and value[: len(BEARER)].lower() == BEARER:
                    bearer = value[len(BEARER) :].strip().decode("latin-1")
            elif name == b"accept-encoding" and NO_GZIP.search(value):
                self.scope["headers"] = [header for header in headers if header[0] != b"accept-encoding"]
            elif name == b"content-length":
                self.length = int(value) if value.isdigit() and len(value) < 20 else None
                self.has_body = self.length != 0
            elif name == b"transfer-encoding":
                self.has_body = True
            elif name == b"content-encoding":
                self.encoding = value.strip().lower()
            elif name == b"x-request-id" and SANE_ID.fullmatch(value):
                self.request_id = value.decode()
        self.key = self.key or bearer  # X-API-Key first: a proxy may have an Authorization of its own

    async def send(self, message: Message) -> None:
        """Send one message of the answer, with what every answer carries."""
        if message["type"] == "http.response.start":
            self._begin(message)
            if ADMIN_CALL in self.scope:  # recorded before the answer leaves
                await self._audit(self)
            await self._send(message)
            return
        if self._answers_head:  # over with the first part: a stream would keep the connection for ever
            if self._ended:
                return
            self._ended = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        self.sent += len(message.get("body", b""))
        await self._send(message)

    def _begin(self, message: Message) -> None:
        self.status = message["status"]
        given = dict(message["headers"])
        # A new list: the route may keep its own, and answer with it again.
        headers = [*message["headers"], (b"x-request-id", self.request_id.encode()), *SECURITY]
        if b"content-security-policy" not in given:
            headers.append(POLICY)
        if b"cache-control" not in given and self.path.startswith("/v1/"):
            headers.append(NO_STORE)
        if self.scope["scheme"] == "https":
            headers.append(HTTPS_ONLY)
        message["headers"] = headers
