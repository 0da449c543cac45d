"""Whether the database was written since: what lets a process serve from memory without serving old data.

SQLite has a data version, which is read in microseconds. On PostgreSQL every write transaction notifies, and each
process listens. Counts and forecasts are notified with their link keys, so that what is known of other links stays
current. The listening thread also checks that the server answers, because one that hangs sends nothing either.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from time import monotonic
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Engine, event

from app.core.database import CHANNEL, broad_writes_here, is_sqlite, writes_here
from app.core.pg_notify import Kind, Notice, read, sender

_guards: WeakKeyDictionary[Engine, ConnectionGuard] = WeakKeyDictionary()
_alone = threading.Lock()


class ConnectionGuard:
    """The connections of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.away = False  # while True, new connections are refused at once
        self._open: WeakSet[Any] = WeakSet()
        event.listen(engine, "do_connect", self._refuse)
        event.listen(engine, "connect", self._note)

    def cut(self) -> None:
        """Shut every connection down, so that threads that wait for an answer get an error."""
        for connection in list(self._open):
            cut(connection)

    def _refuse(self, dialect: Any, _record: Any, _arguments: Any, _parameters: Any) -> None:
        if self.away:
            raise dialect.loaded_dbapi.OperationalError("the database is unreachable")

    def _note(self, connection: Any, _record: Any) -> None:
        self._open.add(connection)


def guard_of(engine: Engine) -> ConnectionGuard:
    """Return the guard of an engine, always the same."""
    with _alone:
        if engine not in _guards:
            _guards[engine] = ConnectionGuard(engine)
        return _guards[engine]


def cut(connection: Any) -> None:
    """Shut down a connection that another thread may be waiting on; only that thread may close it."""
    with (
        suppress(Exception),
        socket.socket(fileno=os.dup(connection.fileno())) as connected,
    ):  # it may be closed already
        connected.shutdown(socket.SHUT_RDWR)


RECONNECT_SECONDS = 1.0
ASK_SECONDS = 2.0  # how often the server is asked whether it is there
ANSWER_SECONDS = 5.0  # after which one that does not answer is taken for hung, or for gone without a word
CLOSE_SECONDS = 5.0

log = logging.getLogger("flowcast.changes")


class ChangeFeed(Protocol):
    """Versions that differ once something was written in between."""

    @property
    def away(self) -> bool:
        """Return whether the database is known to be unreachable."""

    def version(self) -> object:
        """Return the version of what is served, except what is notified link by link."""

    def served_version(self) -> object:
        """Return the version of what is served."""

    def any_version(self) -> object:
        """Return the version of everything."""

    def subscribe(self, listener: Callable[[Notice], None]) -> None:
        """Call a listener, from another thread, with what other processes write link by link."""

    def close(self) -> None:
        """Stop watching."""


def watch_changes(engine: Engine) -> ChangeFeed:
    """Watch a database for writes, by this process or others."""
    return SQLiteChangeFeed(engine) if is_sqlite(engine) else PostgreSQLChangeFeed(engine)


class SQLiteChangeFeed:
    """Reads the data version of the file, over a connection that never writes."""

    def __init__(self, engine: Engine) -> None:
        self._connection = sqlite3.connect(engine.url.database or "", check_same_thread=False)
        self._lock = threading.Lock()

    @property
    def away(self) -> bool:
        """Return False: reading an unreadable file fails at once."""
        return False

    def version(self) -> object:
        """Return SQLite's data version, or something new where the file cannot be read."""
        try:
            with self._lock:
                return self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.OperationalError:
            return object()

    def served_version(self) -> object:
        """Return the same, because the file does not show what was written."""
        return self.version()

    def any_version(self) -> object:
        """Return the same."""
        return self.version()

    def subscribe(self, listener: Callable[[Notice], None]) -> None:
        """Do nothing: on SQLite readers detect every change by the data version."""

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


class PostgreSQLChangeFeed:
    """Listens in a thread of its own; while it cannot, every version is a new one."""

    def __init__(self, engine: Engine) -> None:
        # psycopg wants its own form of the address.
        self._address = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._notices = self._served_notices = self._broad_notices = 0
        self._sender = sender(engine)
        self._listeners: list[Callable[[Notice], None]] = []
        self._listening = False
        self._guard = guard_of(engine)
        self._closed = threading.Event()
        self._ended, self._end = socket.socketpair()  # to be woken by when it is time to close
        self._thread = threading.Thread(target=self._listen, name="changes", daemon=True)
        self._thread.start()

    @property
    def away(self) -> bool:
        """Return whether the server cannot be connected to, or hangs."""
        return self._guard.away

    def version(self) -> object:
        """Count notifications and own writes without link keys; return something new while not listening."""
        return (self._broad_notices, broad_writes_here()) if self._listening else object()

    def served_version(self) -> object:
        """Count notifications and own writes that may change a forecast; return something new while not listening."""
        return (self._served_notices, writes_here()) if self._listening else object()

    def any_version(self) -> object:
        """Count all notifications and own writes; return something new while not listening."""
        return (self._notices, writes_here()) if self._listening else object()

    def subscribe(self, listener: Callable[[Notice], None]) -> None:
        """Call a listener, from the listening thread, with what other processes write link by link."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._end.close()
        self._thread.join(timeout=CLOSE_SECONDS)
        self._ended.close()

    def _listen(self) -> None:
        import psycopg  # here, because a service on SQLite does not need it

        while not self._closed.is_set():
            try:
                with closing(self._connected()) as connection:
                    self._receive(connection)
            except (psycopg.Error, OSError, ValueError) as problem:
                log.warning("not listening to the database", extra={"reason": type(problem).__name__})
            finally:
                self._listening = False
            self._closed.wait(RECONNECT_SECONDS)

    def _on_notice(self, notice: Notice) -> None:
        if notice.link_keys and notice.sender != self._sender:
            for listener in self._listeners:
                listener(notice)
        self._broad_notices += notice.kind is Kind.SERVED
        self._served_notices += notice.kind is not Kind.OTHER
        self._notices += 1

    def _connected(self) -> Any:
        import psycopg

        try:
            connection = psycopg.connect(self._address, autocommit=True, connect_timeout=int(ANSWER_SECONDS))
            with ExitStack() as unless_listening:
                unless_listening.callback(connection.close)
                connection.execute(f"LISTEN {CHANNEL}")
                unless_listening.pop_all()
        except psycopg.Error as problem:
            self._guard.away = True
            if isinstance(problem, psycopg.errors.ConnectionTimeout):  # it hangs, and so do those it was let in to
                self._guard.cut()
            raise
        self._guard.away = False
        self._on_notice(Notice(Kind.SERVED))  # whatever was missed before
        self._listening = True
        return connection

    def _receive(self, connection: Any) -> None:
        with selectors.DefaultSelector() as either:  # select itself knows only the first 1,024 descriptors
            either.register(connection.fileno(), selectors.EVENT_READ)
            either.register(self._ended.fileno(), selectors.EVENT_READ)
            asked = monotonic()
            while not self._closed.is_set():
                either.select(max(0.0, asked + ASK_SECONDS - monotonic()))
                if monotonic() >= asked + ASK_SECONDS:
                    self._ask(connection, either)
                    asked = monotonic()
                connection.pgconn.consume_input()
                while (notification := connection.pgconn.notifies()) is not None:
                    self._on_notice(read(notification.extra.decode()))
                    asked = monotonic()  # a notification shows that the server answers, too

    def _ask(self, connection: Any, either: selectors.BaseSelector) -> None:
        """Check that the server answers; cut all connections to one that does not.

        The kernel, and no timer of this process, decides whether an answer came in time: a process that is too busy
        to read it must not take the server for hung.
        """
        pgconn = connection.pgconn
        pgconn.send_query(b"SELECT 1")
        pgconn.flush()
        while pgconn.is_busy() and not self._closed.is_set():
            if not either.select(ANSWER_SECONDS):
                self._cut_off(connection)
            pgconn.consume_input()
        while not self._closed.is_set() and pgconn.get_result() is not None:
            pass

    def _cut_off(self, connection: Any) -> None:
        log.error("the database does not answer", extra={"seconds": ANSWER_SECONDS})
        self._listening = False
        self._guard.away = True
        self._guard.cut()
        cut(connection)
