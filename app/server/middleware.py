"""The edge: what every request passes on its way in, and every answer on its way out."""

from __future__ import annotations

import logging
import secrets
from functools import partial
from itertools import count
from time import perf_counter

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.core import metrics
from app.core.errors import Invalid, Problem, Unavailable, Unsupported
from app.http.problem_handlers import PASSING
from app.http.problems import problem_response, response_to
from app.http.request_context import ADMIN_CALL, CALLER, Exchange
from app.http.shedding import Shedding
from app.keys.audit import REFUSED_A_MINUTE, record_call
from app.keys.caller import Caller
from app.keys.caller import Scope as KeyScope
from app.keys.limits import Buckets
from app.server.bodies import Body, too_large
from app.server.logs import request_log
from app.settings import Settings

log = logging.getLogger("flowcast.edge")

UNMATCHED = "unmatched"
GONE = 499  # in the log only: the client hung up
ADMIN_PATH, IMPORT_PATH = "/v1/admin/", "/v1/import"
COUNTS_PATH = "/v1/counts"
LINKS_PATH, LINKS_BODY = "/v1/links", 8 << 20  # bytes; 10,000 links with ten points each are 5 MB
SMALL_BODY = 1 << 20  # bytes; the others say little, and what is said wrongly takes hundreds of times its size
PLAIN, PACKED = (b"", b"identity"), (b"gzip", b"x-gzip")


class Edge:
    """Request ids, limits, packing, security headers, one log line and the metrics of every request."""

    def __init__(self, app: ASGIApp, *, settings: Settings, shedding: Shedding) -> None:
        self._app, self._shedding = app, shedding
        largest = settings.max_body_megabytes << 20
        self._limits = {
            IMPORT_PATH: settings.max_import_megabytes << 20,
            COUNTS_PATH: largest,
            LINKS_PATH: min(largest, LINKS_BODY),
        }
        self._body_seconds = settings.body_seconds
        self._root_path = settings.root_path.rstrip("/")
        self._ids, self._id_prefix = count(1), secrets.token_hex(6)  # a number is quicker than a random id
        self._unpacking = CapacityLimiter(1)  # bodies at a time, part by part
        self._refused = Buckets(REFUSED_A_MINUTE)  # calls of keys without the scope admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        if self._root_path:  # here, and not only in the server, so that it holds however the app is run
            scope["root_path"] = self._root_path
        exchange = Exchange(scope, send, self._id_prefix, self._ids, self._audit)
        body: Body | None = None
        try:
            self._shedding.check(exchange.method, exchange.path, scope["query_string"])
            if exchange.has_body:
                body = await self._body(exchange, receive)
                receive = body.receive
            if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
                raise Invalid("the address holds the character NUL, which is refused")
            await self._app(exchange.scope, receive, exchange.send)
        except ClientDisconnect:
            pass
        except Exception as problem:
            if exchange.status:  # half an answer cannot be taken back; the connection must break
                raise
            await _answer_to(problem, exchange)(scope, receive, exchange.send)
        finally:
            if body is not None:
                body.let_go()
            _record(exchange, perf_counter() - began)

    async def _body(self, exchange: Exchange, receive: Receive) -> Body:
        scope, path = exchange.scope, exchange.path
        limit = self._limits.get(path, SMALL_BODY)
        if exchange.length is not None and exchange.length > limit:
            raise too_large(limit)
        if exchange.encoding not in PLAIN + PACKED:
            detail = f"Content-Encoding={exchange.encoding.decode('latin-1')!r} is refused; it must be gzip or identity"
            raise Unsupported(detail, headers={"Accept-Encoding": "gzip, identity"})
        if path.startswith("/v1/"):
            # Key and scope are checked before any of the body is read: FastAPI would parse the body first.
            state = scope["app"].state
            scope[CALLER] = caller = await state.api_keys.identify(exchange.key, exchange.client)
            if (guarded := state.key_checks.find(scope["method"], path)) is not None:
                scope["route"] = guarded.route
                guarded.check.check(scope, caller)
            elif path.startswith(ADMIN_PATH):
                scope[ADMIN_CALL] = True  # an attempt at a call that does not exist is recorded, too
        packed = exchange.encoding in PACKED
        if packed:
            gone = (b"content-encoding", b"content-length")
            scope["headers"] = [header for header in scope["headers"] if header[0] not in gone]
        shedding = None if path == IMPORT_PATH else self._shedding  # an import's parts go to disk
        unpacking = self._unpacking if packed else None
        return Body(receive, limit, seconds=self._body_seconds, unpacking=unpacking, shedding=shedding)

    async def _audit(self, exchange: Exchange) -> None:
        scope = exchange.scope
        caller: Caller = scope[CALLER]
        if KeyScope.ADMIN not in caller.scopes and self._refused.of(caller.key_id).take():
            metrics.call_unrecorded()  # else a key without the scope could fill the audit
            return
        record = partial(
            record_call,
            scope["app"].state.engine,
            caller,
            method=exchange.method,
            path=scope["path"],
            status=exchange.status,
            request_id=exchange.request_id,
            client=exchange.client,
        )
        await run_sync(record, limiter=CapacityLimiter(1))  # it may wait for a lock: no thread of others for that


def _record(exchange: Exchange, seconds: float) -> None:
    """Count a request and write its line of the log."""
    scope, status = exchange.scope, exchange.status or GONE
    route = getattr(scope.get("route"), "path", UNMATCHED)
    caller = scope.get(CALLER)
    metrics.request_answered(exchange.method, route, status, seconds)
    facts = {
        "request_id": exchange.request_id,
        "method": exchange.method,
        "path": scope["path"],
        "route": route,
        "status": status,
        "duration_ms": round(seconds * 1000, 3),
        "bytes": exchange.sent,
        "key_id": None if caller is None else caller.key_id,
        "client": exchange.client,
    }
    request_log.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra=facts)


def _answer_to(problem: Exception, exchange: Exchange) -> Response:
    if isinstance(problem, Problem):  # found before the app had its turn
        return response_to(exchange.scope, problem)
    if isinstance(problem, PASSING):  # as the key was looked up
        return response_to(exchange.scope, Unavailable("the database cannot be reached; try again shortly"))
    log.error("unexpected failure", exc_info=problem, extra={"request_id": exchange.request_id})
    detail = "the request could not be answered; the service's log says why, under the request id"
    return problem_response(exchange.scope, 500, "Something went wrong", detail)
