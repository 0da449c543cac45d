"""Databases for tests: SQLite, and one real PostgreSQL that all processes of a test run share."""

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from app.core.database import open_database
from app.core.schema import upgrade_schema
from app.settings import Settings
from tests.support.postgresql import PostgreSQL, sockets
from tests.support.waiting import wait_until

RUN = "PYTEST_RUN_ID"  # environment variable that identifies a test run in all its processes
MEMORY = Path("/dev/shm")  # a file system in memory, on Linux
MEMORY_BYTES = 2 << 30  # that must be free there; the server of a test run needs less than 0.5 GB
UNUSED_DATABASES: list[str] = []  # databases of tests that have ended
STARTED: list[PostgreSQL] = []  # by this process; not stopped with it, because other processes of the run may need it

# For tests whose subject is one kind of database, or does not depend on it.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def server_folder() -> Path:
    """Return the folder of this run's PostgreSQL: in memory if there is enough, because that is faster.

    A database has 365 files. Creating and removing them on a disk takes as long as many of the tests.
    """
    name = f"flowcast-postgresql-{os.environ[RUN]}"
    with contextlib.suppress(OSError):
        if (MEMORY / name).exists() or (os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES):
            return MEMORY / name
    return Path(tempfile.gettempdir()) / name


def remove_server() -> None:
    """Stop and remove this run's server."""
    folder = server_folder()
    pid_file = folder / "data" / "postmaster.pid"
    with contextlib.suppress(OSError, ValueError, IndexError):
        os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGINT)  # PostgreSQL's fast shutdown
        wait_until(lambda: not pid_file.exists())
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_suffix(".lock").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def postgresql() -> Callable[[str], str]:
    """Return addresses of databases in the PostgreSQL of this run; ``template`` has all tables."""
    folder = server_folder()

    def address(name: str) -> str:
        return f"postgresql://postgres@/{name}?host={sockets(folder)}"

    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first process starts it for all
        if not (folder / "ready").exists():
            folder.mkdir()
            folder.chmod(0o755)
            STARTED.append(PostgreSQL(folder, fsync=False))  # nothing needs to survive a power cut
            STARTED[0].start()
            with psycopg.connect(address("postgres"), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET max_wal_size = '128MB'")  # the folder may be in memory
                connection.execute("SELECT pg_reload_conf()")
                connection.execute("CREATE DATABASE template")
            engine = open_database(Settings(database_url=address("template")).database_url)
            upgrade_schema(engine)
            engine.dispose()
            (folder / "ready").touch()
    return address


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
    """Return the address of an empty database with all tables."""
    if request.param == "sqlite":
        path = tmp_path / "flowcast.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    name = f"test_{uuid.uuid4().hex}"
    yield create_database(request.getfixturevalue("postgresql"), name, "template")
    UNUSED_DATABASES.append(name)


@pytest.fixture
def new_database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Return a function that creates a database, without tables or as a copy of another one (its file or name)."""
    made: list[str] = []

    def new(kind: str, like: str | None = None) -> str:
        name = f"new_{uuid.uuid4().hex}"
        if kind == "sqlite":
            file = tmp_path / f"{name}.db"
            if like is not None:
                shutil.copy(like, file)
            return f"sqlite:///{file}"
        made.append(name)
        return create_database(request.getfixturevalue("postgresql"), name, like)

    yield new
    UNUSED_DATABASES.extend(made)


def create_database(address: Callable[[str], str], name: str, like: str | None = None) -> str:
    """Create a database on a server and return its address."""
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        # Not dropped when their tests end, because the server would wait for connections that are being closed.
        while UNUSED_DATABASES:
            connection.execute(f"DROP DATABASE {UNUSED_DATABASES.pop()} WITH (FORCE)".encode())
        template = f" TEMPLATE {like} STRATEGY FILE_COPY" if like else ""
        connection.execute(f"CREATE DATABASE {name}{template}".encode())
    return address(name)
