"""Authentication: identify the caller and check that the key has the call's scope, before any of the body is read."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.openapi.models import APIKey
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import Scope as ASGIScope

from app.http.dependencies import from_state
from app.http.requests import refuse_unacceptable, refuse_unknown_parameters
from app.keys.cache import ApiKeyCache, Caller
from app.keys.tables import Scope

KEY_HEADER = "X-API-Key"
BEARER = "bearer "
API_PATH, ADMIN_PATH = "/v1/", "/v1/admin/"
# Entries of a request's ASGI scope.
CALLER = "flowcast.caller"
CHECKED_KEY = "flowcast.checked_key"  # the RequireKey that the caller has passed
ADMIN_CALL = "flowcast.admin_call"  # present where the audit records the call

ApiKeysDep = Annotated[ApiKeyCache, Depends(from_state("api_keys"))]


class RequireKey(SecurityBase):
    """Declares that a route needs a key with a scope (or any key), and provides the caller.

    ``authenticate`` reads the declaration and checks the key, because FastAPI would parse the body before
    it calls a dependency.
    """

    def __init__(self, scope: Scope | None) -> None:
        self.model = APIKey.model_validate(
            {"in": "header", "name": KEY_HEADER, "description": "A key with the scope of the call"}
        )
        self.scheme_name = "key"
        self.scope = scope

    async def __call__(self, request: Request) -> Caller:
        """Return the caller; refuse unknown query parameters, and reads whose answer the caller would not accept."""
        if request.scope.get(CHECKED_KEY) is not self:
            raise RuntimeError("the key of this request was not checked by authenticate")
        refuse_unknown_parameters(request)
        refuse_unacceptable(request)
        return cast(Caller, request.scope[CALLER])


AnyKey = Annotated[Caller, Security(RequireKey(None))]
ReadKey = Annotated[Caller, Security(RequireKey(Scope.READ))]
IngestKey = Annotated[Caller, Security(RequireKey(Scope.INGEST))]
AdminKey = Annotated[Caller, Security(RequireKey(Scope.ADMIN))]


async def authenticate(scope: ASGIScope, path: str) -> None:
    """Identify the caller, mark admin calls for the audit, and raise a problem if the key has not the call's scope.

    Outside the API nothing needs a key. The path is that of the routes, without the root path.
    """
    if not path.startswith(API_PATH):
        return
    app = scope["app"]
    route = next((route for route in app.routes if route.matches(scope)[0] is Match.FULL), None)
    required = _required_key(route)
    if route is not None:
        scope["route"] = route  # the log and the metrics name the route of refused calls, too
    client = scope["client"][0] if scope["client"] else ""
    caller = scope[CALLER] = await app.state.api_keys.identify(_sent_key(Headers(scope=scope)), client)
    needed = None if required is None else required.scope
    # By its path, too, so that attempts at admin calls that do not exist are recorded.
    if needed is Scope.ADMIN or path.startswith(ADMIN_PATH):
        scope[ADMIN_CALL] = True
    if needed is not None:
        caller.require_scope(needed)
    scope[CHECKED_KEY] = required


def _required_key(route: BaseRoute | None) -> RequireKey | None:
    """Return the declaration among the parameters of a route; None if it needs no key."""
    dependencies = route.dependant.dependencies if isinstance(route, APIRoute) else ()
    return next((found.call for found in dependencies if isinstance(found.call, RequireKey)), None)


def _sent_key(headers: Headers) -> str | None:
    """Return the key that a request carries: of X-API-Key first, because a proxy may set Authorization for itself."""
    if key := headers.get(KEY_HEADER):
        return key
    bearers = [value for value in headers.getlist("Authorization") if value.lower().startswith(BEARER)]
    return bearers[0][len(BEARER) :].strip() if bearers else None
