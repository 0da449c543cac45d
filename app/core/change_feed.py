"""Detects writes to the database by any process, so that a process can serve from memory without serving old data.

SQLite has a data version, which is read in microseconds. On PostgreSQL every write transaction notifies, and each
process listens. Counts and forecasts are notified with their link keys, so that cached data of other links stays
current. The listening thread also checks that the server answers, because one that hangs sends nothing either.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakSet

from sqlalchemy import Engine, event

from app.core.database import CHANNEL, Change, is_sqlite, own_writes, sender_name

RECONNECT_SECONDS = 1.0
CHECK_SECONDS = 2.0  # between two checks that the server answers
ANSWER_SECONDS = 5.0  # after which a server that does not answer counts as unreachable
CLOSE_SECONDS = 5.0

log = logging.getLogger("flowcast.changes")


class Notice(NamedTuple):
    """A notification that was received."""

    change: Change
    sender: str = ""
    link_keys: tuple[int, ...] = ()


def parse_notice(payload: str) -> Notice:
    """Parse a notice; one that cannot be parsed may concern any link."""
    try:
        change, *rest = payload.split(" ")
        if not rest:
            return Notice(Change(change))
        sender, keys = rest
        return Notice(Change(change), sender, tuple(int(key) for key in keys.split(",")))
    except ValueError:
        return Notice(Change.SERVED)


class SQLiteChangeFeed:
    """Reads the data version of the file, over a connection that never writes."""

    unreachable = False  # reading an unreadable file fails at once

    def __init__(self, engine: Engine) -> None:
        self._connection = sqlite3.connect(engine.url.database or "", check_same_thread=False)
        self._lock = threading.Lock()

    def version(self) -> object:
        """Return SQLite's data version, or a new object if the file cannot be read."""
        try:
            with self._lock:
                return self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.OperationalError:
            return object()

    served_version = any_version = version  # the file does not show what was written

    def subscribe(self, listener: Callable[[Notice], None]) -> None:
        """Do nothing: on SQLite readers detect every change by the data version."""

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


class ConnectionGuard:
    """The connections of one engine: refuses new ones while the server is unreachable, and closes those that hang."""

    def __init__(self, engine: Engine) -> None:
        self.unreachable = False  # while True, new connections are refused at once
        self._open: WeakSet[Any] = WeakSet()
        event.listen(engine, "do_connect", self._refuse)
        event.listen(engine, "connect", lambda connection, _record: self._open.add(connection))

    def shut_down_all(self) -> None:
        """Shut every connection down, so that threads that wait for an answer get an error."""
        for connection in list(self._open):
            shut_down(connection)

    def _refuse(self, dialect: Any, _record: Any, _arguments: Any, _parameters: Any) -> None:
        if self.unreachable:
            raise dialect.loaded_dbapi.OperationalError("the database is unreachable")


def shut_down(connection: Any) -> None:
    """Shut down a connection that another thread may be waiting on; only that thread may close it."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as connected:  # it may be closed
        connected.shutdown(socket.SHUT_RDWR)


class PostgreSQLChangeFeed:
    """Listens in a thread; while it cannot, every version is a new one."""

    def __init__(self, engine: Engine) -> None:
        # psycopg needs the address in a form of its own.
        self._address = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._notices: Counter[Change] = Counter()
        self._sender = sender_name(engine)
        self._listeners: list[Callable[[Notice], None]] = []
        self._listening = False
        self._guard = ConnectionGuard(engine)
        self._closed = threading.Event()
        self._ended, self._end = socket.socketpair()  # ends the thread's wait when the feed is closed
        self._thread = threading.Thread(target=self._listen, name="changes", daemon=True)
        self._thread.start()

    @property
    def unreachable(self) -> bool:
        """Return whether the server cannot be connected to, or hangs."""
        return self._guard.unreachable

    def version(self) -> object:
        """Return the version of what is served, except what is notified link by link."""
        return self._version(Change.SERVED)

    def served_version(self) -> object:
        """Return the version of what is served."""
        return self._version(Change.SERVED, Change.COUNTS, Change.FORECASTS)

    def any_version(self) -> object:
        """Return the version of everything."""
        return self._version(*Change)

    def subscribe(self, listener: Callable[[Notice], None]) -> None:
        """Call a listener, from the listening thread, with what other processes write link by link."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._end.close()
        self._thread.join(timeout=CLOSE_SECONDS)
        self._ended.close()

    def _version(self, *changes: Change) -> object:
        """Count notifications and own writes, which are notified later; return a new object while not listening."""
        if not self._listening:
            return object()
        return tuple(writes[change] for writes in (self._notices, own_writes) for change in changes)

    def _listen(self) -> None:
        import psycopg  # not loaded by a service on SQLite

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
        self._notices[notice.change] += 1

    def _connected(self) -> Any:
        import psycopg

        try:
            connection = psycopg.connect(self._address, autocommit=True, connect_timeout=int(ANSWER_SECONDS))
            with ExitStack() as unless_listening:
                unless_listening.callback(connection.close)
                connection.execute(f"LISTEN {CHANNEL}")
                unless_listening.pop_all()
        except psycopg.Error as problem:
            self._guard.unreachable = True
            if isinstance(problem, psycopg.errors.ConnectionTimeout):  # it hangs, like the connections that are open
                self._guard.shut_down_all()
            raise
        self._guard.unreachable = False
        self._on_notice(Notice(Change.SERVED))  # stands for all notices that were missed before
        self._listening = True
        return connection

    def _receive(self, connection: Any) -> None:
        with selectors.DefaultSelector() as either:  # select() is limited to 1,024 descriptors
            either.register(connection.fileno(), selectors.EVENT_READ)
            either.register(self._ended.fileno(), selectors.EVENT_READ)
            answered = monotonic()
            while not self._closed.is_set():
                either.select(max(0.0, answered + CHECK_SECONDS - monotonic()))
                if monotonic() >= answered + CHECK_SECONDS:
                    self._check_answers(connection, either)
                    answered = monotonic()
                connection.pgconn.consume_input()
                while (notification := connection.pgconn.notifies()) is not None:
                    self._on_notice(parse_notice(notification.extra.decode()))
                    answered = monotonic()  # a notification shows that the server answers, too

    def _check_answers(self, connection: Any, either: selectors.BaseSelector) -> None:
        """Check that the server answers; shut down all connections to one that does not.

        The kernel, and no timer of this process, decides whether an answer came in time: a process that is too busy
        to read an answer must not conclude that the server hangs.
        """
        pgconn = connection.pgconn
        pgconn.send_query(b"SELECT 1")
        pgconn.flush()
        while pgconn.is_busy() and not self._closed.is_set():
            if not either.select(ANSWER_SECONDS):
                log.error("the database does not answer", extra={"seconds": ANSWER_SECONDS})
                self._listening = False
                self._guard.unreachable = True
                self._guard.shut_down_all()
                shut_down(connection)
            pgconn.consume_input()
        while not self._closed.is_set() and pgconn.get_result() is not None:
            pass


ChangeFeed = SQLiteChangeFeed | PostgreSQLChangeFeed


def watch_changes(engine: Engine) -> ChangeFeed:
    """Watch a database for writes, by this process or others."""
    return SQLiteChangeFeed(engine) if is_sqlite(engine) else PostgreSQLChangeFeed(engine)
