"""The key that a call needs, declared as a parameter of its route."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.openapi.models import APIKey
from fastapi.security.base import SecurityBase

from app.http.dependencies import from_state
from app.http.media_types import refuse_unacceptable
from app.http.query_types import refuse_unknown
from app.keys.cache import ApiKeyCache
from app.keys.caller import CALLER, CHECKED_KEY, Caller, Scope

KEY_HEADER = "X-API-Key"
ApiKeysDep = Annotated[ApiKeyCache, Depends(from_state("api_keys"))]


class RequireKey(SecurityBase):
    """Declares that a route needs a key with a scope (or any key), and provides the caller.

    ``AuthenticationMiddleware`` reads the declaration and checks the key, because FastAPI would parse the body before
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
            raise RuntimeError("the key of this request was not checked by AuthenticationMiddleware")
        refuse_unknown(request)
        refuse_unacceptable(request)
        return cast(Caller, request.scope[CALLER])


AnyKey = Annotated[Caller, Security(RequireKey(None))]
ReadKey = Annotated[Caller, Security(RequireKey(Scope.READ))]
IngestKey = Annotated[Caller, Security(RequireKey(Scope.INGEST))]
AdminKey = Annotated[Caller, Security(RequireKey(Scope.ADMIN))]
