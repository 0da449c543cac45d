"""What every request passes: id, load shedding, limits of its body, key, headers of its answer, audit, log, metrics."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from time import perf_counter

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core import metrics
from app.core.errors import Invalid, Problem, Unavailable
from app.http.problems import PASSING, REQUEST_ID, problem_response
from app.http.requests import route_path
from app.http.shedding import Shedding
from app.keys.authentication import ADMIN_CALL, CALLER, authenticate
from app.keys.cache import Caller, RateLimiter
from app.keys.queries import record_call
from app.keys.tables import Scope as KeyScope
from app.server.bodies import BodyLimits
from app.server.logs import request_log
from app.settings import Settings

log = logging.getLogger("flowcast.middleware")

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
OTHER_METHOD, UNMATCHED = "other", "unmatched"
CLIENT_CLOSED = 499  # in the log only: the client closed the connection before an answer
REFUSED_A_MINUTE = 10  # calls of one key, in one process, that the audit records; more are only counted
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
NO_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)")
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]
POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")
HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")


class RequestContext:
    """One request, and the state of its answer."""

    def __init__(
        self, scope: Scope, send: Send, new_id: str, audit: Callable[[RequestContext], Awaitable[None]]
    ) -> None:
        headers = Headers(scope=scope)
        self._send, self._audit = send, audit
        self.status = self.sent = 0
        self.method: str = scope["method"]
        self.path = route_path(scope)
        self.client = scope["client"][0] if scope["client"] else ""
        given_id = headers.get("x-request-id", "")
        self.request_id = given_id if SANE_ID.fullmatch(given_id) else new_id
        scope[REQUEST_ID] = self.request_id
        if NO_GZIP.search(headers.get("accept-encoding", "")):  # GZipMiddleware does not read qualities
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
        self._is_head, self._ended = self.method == "HEAD", False
        # HEAD is answered by the routes of GET. A copy, because the server reads the method, too.
        self.scope: Scope = {**scope, "method": "GET"} if self._is_head else scope

    async def send(self, message: Message) -> None:
        """Send one message of the answer, with the headers of every answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._headers(message["headers"])
            if ADMIN_CALL in self.scope:  # recorded before the answer leaves
                await self._audit(self)
        elif self._is_head:  # ended by the first part: a stream would keep the connection open
            if self._ended:
                return
            self._ended = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        self.sent += len(message.get("body", b""))
        await self._send(message)

    def _headers(self, given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        names = {name for name, _ in given}
        headers = [*given, (b"x-request-id", self.request_id.encode()), *SECURITY]
        if b"content-security-policy" not in names:
            headers.append(POLICY)
        if b"cache-control" not in names and self.path.startswith("/v1/"):
            headers.append(NO_STORE)
        if self.scope["scheme"] == "https":
            headers.append(HTTPS_ONLY)
        return headers


class RequestMiddleware:
    """Gives every request an id, sheds load, bounds its body, checks its key, and completes and logs its answer."""

    def __init__(self, app: ASGIApp, *, settings: Settings, shedding: Shedding) -> None:
        self._app, self._shedding, self._limits = app, shedding, BodyLimits(settings, shedding)
        self._root_path = settings.root_path.rstrip("/")
        self._id_prefix, self._ids = secrets.token_hex(6), count(1)
        self._refused = RateLimiter(REFUSED_A_MINUTE)  # calls of keys without the scope admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and answer what it raises with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        if self._root_path:  # set here as well as by the server, so that it holds however the app is run
            scope["root_path"] = self._root_path
        context, body = RequestContext(scope, send, f"{self._id_prefix}{next(self._ids):06x}", self._audit), None
        try:
            self._shedding.check(context.method, context.path, scope["query_string"])
            if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
                raise Invalid("the address contains the character NUL, which is refused")
            body = self._limits.bounded(context.scope, context.path, receive)
            await authenticate(context.scope, context.path)
            await self._app(context.scope, receive if body is None else body.receive, context.send)
        except ClientDisconnect:
            pass
        except Exception as problem:
            if context.status:  # the answer has begun; only closing the connection shows that it is not whole
                raise
            await problem_response(context.scope, _problem_of(problem, context))(scope, receive, context.send)
        finally:
            if body is not None:
                body.release()
            _record(context, perf_counter() - began)

    async def _audit(self, context: RequestContext) -> None:
        scope = context.scope
        caller: Caller = scope[CALLER]
        if KeyScope.ADMIN not in caller.scopes and self._refused.take(caller.key_id):
            metrics.UNRECORDED_CALLS.inc()  # else a key without the scope could fill the audit
            return
        record = partial(
            record_call,
            scope["app"].state.engine,
            key_id=caller.key_id,
            key_name=caller.name,
            method=context.method[:8],  # a caller may send texts of any length; columns are bounded
            path=scope["path"][:1000],
            status=context.status,
            request_id=context.request_id,
            client=context.client[:64],
        )
        await run_sync(record, limiter=CapacityLimiter(1))  # it may wait for a lock, and must not use others' threads


def _record(context: RequestContext, seconds: float) -> None:
    """Count a request and write its line of the log."""
    scope, status = context.scope, context.status or CLIENT_CLOSED
    route = getattr(scope.get("route"), "path", UNMATCHED)
    caller = scope.get(CALLER)
    labels = context.method if context.method in METHODS else OTHER_METHOD, route, f"{status // 100}xx"
    metrics.REQUESTS.labels(*labels).inc()
    metrics.REQUEST_SECONDS.labels(*labels).observe(seconds)
    if status in metrics.REFUSAL_CODES:
        metrics.REFUSALS.labels(str(status)).inc()
    facts = {
        "request_id": context.request_id,
        "method": context.method,
        "path": scope["path"],
        "route": route,
        "status": status,
        "duration_ms": round(seconds * 1000, 3),
        "bytes": context.sent,
        "key_id": None if caller is None else caller.key_id,
        "client": context.client,
    }
    request_log.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra=facts)


def _problem_of(raised: Exception, context: RequestContext) -> Problem:
    if isinstance(raised, Problem):  # by a middleware
        return raised
    if isinstance(raised, PASSING):  # while the key was looked up
        return Unavailable("the database cannot be reached; try again shortly")
    log.error("unexpected failure", exc_info=raised, extra={"request_id": context.request_id})
    return Problem("the request could not be answered; the service's log has the reason, under the request id")
