"""What routes ask for, named once as types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request, Security
from fastapi.openapi.models import APIKey
from fastapi.security.base import SecurityBase
from sqlalchemy.orm import Session
from starlette.types import Scope as ASGIScope

from app.database import read_session, writing
from app.keys.caller import Scope
from app.keys.ring import Caller
from app.runtime import Runtime
from app.web.exchange import ADMIN_CALL, CALLER, SENT_KEY
from app.web.known_query import refuse_unknown
from app.web.media_types import refuse_unacceptable

KEY_HEADER = "X-API-Key"


async def get_runtime(request: Request) -> Runtime:  # async, or it would be sent to a thread
    """Give the running process."""
    return cast(Runtime, request.app.state.runtime)


RuntimeDep = Annotated[Runtime, Depends(get_runtime)]


async def get_read_session(request: Request, runtime: RuntimeDep) -> AsyncIterator[Session]:
    """Give a session for one request that only reads."""
    # Opened here, for that asks nobody, and closed in a thread that is not waited for: else a read takes three turns.
    async with request.app.state.shedding.turns["read"]:
        session = read_session(runtime.engine)
        try:
            yield session
        finally:
            await run_sync(session.close, limiter=CapacityLimiter(1))


async def get_write_session(request: Request, runtime: RuntimeDep) -> AsyncIterator[Session]:
    """Give a session that commits before the answer leaves."""
    # Begun here, for that asks nobody as yet, and ended in a thread that is not waited for.
    async with request.app.state.shedding.turns["write"]:
        writes = writing(runtime.engine)
        session = writes.__enter__()
        try:
            yield session
        except BaseException as problem:
            await run_sync(writes.__exit__, type(problem), problem, problem.__traceback__, limiter=CapacityLimiter(1))
            raise
        await run_sync(writes.__exit__, None, None, None, limiter=CapacityLimiter(1))


# scope="function": what is acknowledged is committed, for FastAPI would else commit after answering.
ReadSession = Annotated[Session, Depends(get_read_session, scope="function")]
WriteSession = Annotated[Session, Depends(get_write_session, scope="function")]


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
            runtime = cast(Runtime, request.app.state.runtime)
            client = request.client
            caller = await runtime.keys.identify(scope.get(SENT_KEY), client.host if client else "")
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
