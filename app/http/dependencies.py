"""What routes of every package ask for, named once as types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.change_feed import ChangeFeed
from app.core.clock import Clock
from app.core.database import reading, writing
from app.settings import Settings


def from_state(name: str) -> Callable[[Request], Awaitable[Any]]:
    """Return a dependency that is an attribute of ``app.state``, where the service puts what it opens."""

    async def get(request: Request) -> Any:  # async: FastAPI would send a plain function to a thread
        return getattr(request.app.state, name)

    return get


SettingsDep = Annotated[Settings, Depends(from_state("settings"))]
EngineDep = Annotated[Engine, Depends(from_state("engine"))]
ClockDep = Annotated[Clock, Depends(from_state("clock"))]
ChangeFeedDep = Annotated[ChangeFeed, Depends(from_state("change_feed"))]


async def get_read_session(request: Request, engine: EngineDep) -> AsyncIterator[Session]:
    """Return a session for one request that only reads."""
    # Opening a session does no I/O. It is closed in a thread of its own, which waits for no other request.
    async with request.app.state.shedding.turns["read"]:
        session = reading(engine)
        try:
            yield session
        finally:
            await run_sync(session.close, limiter=CapacityLimiter(1))


async def get_write_session(request: Request, engine: EngineDep) -> AsyncIterator[Session]:
    """Return a session that commits before the response is sent."""
    # Beginning does no I/O. It ends in a thread of its own, which waits for no other request.
    async with request.app.state.shedding.turns["write"]:
        writes = writing(engine)
        session = writes.__enter__()
        try:
            yield session
        except BaseException as problem:
            await run_sync(writes.__exit__, type(problem), problem, problem.__traceback__, limiter=CapacityLimiter(1))
            raise
        await run_sync(writes.__exit__, None, None, None, limiter=CapacityLimiter(1))


# scope="function": what is acknowledged is committed, because FastAPI would otherwise commit after the response.
ReadSession = Annotated[Session, Depends(get_read_session, scope="function")]
WriteSession = Annotated[Session, Depends(get_write_session, scope="function")]
