"""Dependencies that routes of every package share, named once as types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from anyio import CancelScope, CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.change_feed import ChangeFeed
from app.core.clock import Clock
from app.core.database import reading, writing
from app.http.shedding import Shedding
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
SheddingDep = Annotated[Shedding, Depends(from_state("shedding"))]


@asynccontextmanager
async def closed_in_thread(context: AbstractContextManager[Session]) -> AsyncIterator[Session]:
    """Open a session for a block and close it in a thread, also if the block is cancelled."""

    async def close(*raised: Any) -> None:
        # Not cancelled itself, and in a thread of its own: all others may wait for the connection that this one frees.
        with CancelScope(shield=True):
            await run_sync(context.__exit__, *raised, limiter=CapacityLimiter(1))

    session = context.__enter__()  # opens no connection: the first statement does
    async with AsyncExitStack() as stack:
        stack.push_async_exit(close)
        yield session


async def get_read_session(engine: EngineDep, shedding: SheddingDep) -> AsyncIterator[Session]:
    """Return a session for one request that only reads."""
    async with shedding.turns["read"], closed_in_thread(reading(engine)) as session:
        yield session


async def get_write_session(engine: EngineDep, shedding: SheddingDep) -> AsyncIterator[Session]:
    """Return a session that commits before the response is sent."""
    async with shedding.turns["write"], closed_in_thread(writing(engine)) as session:
        yield session


# scope="function": what is acknowledged is committed, because FastAPI would otherwise commit after the response.
ReadSession = Annotated[Session, Depends(get_read_session, scope="function")]
WriteSession = Annotated[Session, Depends(get_write_session, scope="function")]
