import asyncio
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import Engine, text

from app.core.database import open_database
from app.http.dependencies import get_read_session, get_write_session
from app.http.shedding import Shedding
from app.settings import Settings


@pytest.fixture
def engine(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'test.db'}")
    yield engine
    engine.dispose()


@pytest.mark.parametrize("get_session", [get_read_session, get_write_session])
def test_a_cancelled_request_returns_its_connection(engine: Engine, get_session):
    async def cancel_a_request() -> None:
        opened = asyncio.Event()

        async def request() -> None:
            async with asynccontextmanager(get_session)(engine, Shedding(Settings())) as session:
                session.execute(text("SELECT 1"))
                opened.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(request())
        await opened.wait()
        assert engine.pool.checkedout() == 1  # type: ignore[attr-defined]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]

    asyncio.run(cancel_a_request())
