"""The key check of every route, by the scope that the call needs."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.openapi.models import APIKey
from fastapi.security.base import SecurityBase
from starlette.types import Scope as ASGIScope

from app.http.dependencies import from_state
from app.http.known_query import refuse_unknown
from app.http.media_types import refuse_unacceptable
from app.http.request_context import ADMIN_CALL, CALLER, SENT_KEY
from app.keys.cache import KeyRing
from app.keys.caller import Caller, Scope

KEY_HEADER = "X-API-Key"
ApiKeysDep = Annotated[KeyRing, Depends(from_state("api_keys"))]


class KeyWith(SecurityBase):
    """Lets only keys with a scope pass (or any), notes who called, and refuses query parameters the call does not know.

    Reads whose answer the caller would not accept are refused, too. A dependency and a security scheme in one: each
    dependency costs as much as the check itself.
    """

    def __init__(self, scope: Scope | None) -> None:
        self.model = APIKey.model_validate(
            {"in": "header", "name": KEY_HEADER, "description": "A key with the scope of the call"}
        )
        self.scheme_name = "key"
        self._scope = None if scope is None else scope.value
        self._audited = scope is Scope.ADMIN

    async def __call__(self, request: Request) -> Caller:
        """Tell who calls, or refuse the caller, and only then what is asked: strangers learn nothing."""
        scope = request.scope
        caller = cast("Caller | None", scope.get(CALLER))  # known already where a body had to be let in
        if caller is None:
            keys = cast(KeyRing, request.app.state.api_keys)
            client = request.client
            caller = await keys.identify(scope.get(SENT_KEY), client.host if client else "")
            scope[CALLER] = caller
        self.check(scope, caller)
        refuse_unknown(request)
        refuse_unacceptable(request)
        return caller

    def check(self, scope: ASGIScope, caller: Caller) -> None:
        """Refuse a caller whose key has not the scope; the edge checks this before it reads a body."""
        if self._audited:
            scope[ADMIN_CALL] = True  # refused or not, the edge records it
        if self._scope is not None:
            caller.may(self._scope)


AnyKey = Annotated[Caller, Security(KeyWith(None))]
ReadKey = Annotated[Caller, Security(KeyWith(Scope.READ))]
IngestKey = Annotated[Caller, Security(KeyWith(Scope.INGEST))]
AdminKey = Annotated[Caller, Security(KeyWith(Scope.ADMIN))]
