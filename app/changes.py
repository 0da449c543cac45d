"""Whether anything was written since: what lets a process serve from memory and never an old answer.

SQLite tells by its data version, for a few microseconds a question. PostgreSQL is listened to: every
write transaction notifies, and whoever listens hears of it when it is committed. Counts and forecasts are
told link by link, so that what is known of other links stays good.
"""

from __future__ import annotations

import logging
import selectors
import socket
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy import Engine

from app.database import CHANNEL, broad_writes_here, is_sqlite, writes_here
from app.notices import Kind, Notice, read, sender

RECONNECT_SECONDS = 1.0
# A server or a network that vanishes says no goodbye: without these a listener would be deaf for hours and not know.
KEEP_ALIVE: dict[str, Any] = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
CLOSE_SECONDS = 5.0

log = logging.getLogger("flowcast.changes")


class Changes(Protocol):
    """Gives stamps that differ once something was written in between."""

    def stamp(self) -> object:
        """Give the present stamp of what is served, but for what is told link by link."""

    def served_stamp(self) -> object:
        """Give the present stamp of what is served."""

    def any_stamp(self) -> object:
        """Give the present stamp of everything."""

    def deciding(self, link_key: int) -> tuple[int | None, int] | None:
        """Give, if it can be told in microseconds, a link's newest slot and active version, 0 for none."""

    def in_place(self, question: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        """Answer, where it takes microseconds, a small question; nothing where it takes more."""

    def tell(self, listener: Callable[[Notice], None]) -> None:
        """Call a listener, from another thread, with what other processes write link by link."""

    def close(self) -> None:
        """Stop watching."""


def watch_changes(engine: Engine) -> Changes:
    """Watch a database for writes, by this process or others."""
    return SQLiteChanges(engine) if is_sqlite(engine) else PostgreSQLChanges(engine)


_DECIDING = """
    SELECT (SELECT max(slot_start) FROM counts WHERE link_key = ?),
           coalesce((SELECT version FROM trained_models WHERE link_key = ? AND state = 'active'), 0)
"""


class SQLiteChanges:
    """Asks the file itself, over a connection that never writes."""

    def __init__(self, engine: Engine) -> None:
        self._connection = sqlite3.connect(engine.url.database or "", check_same_thread=False)
        self._lock = threading.Lock()

    def stamp(self) -> object:
        """Give SQLite's count of commits by others than this connection, which makes none."""
        with self._lock:
            return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def served_stamp(self) -> object:
        """Give the same: the file does not tell what was written."""
        return self.stamp()

    def any_stamp(self) -> object:
        """Give the same."""
        return self.stamp()

    def deciding(self, link_key: int) -> tuple[int | None, int] | None:
        """Look, in place, at the two things that decide a link's answer: 20 µs, where a session would take 2 ms."""
        newest, version = self.in_place(_DECIDING, (link_key, link_key))[0]
        return newest, version

    def in_place(self, question: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        """Ask the file."""
        with self._lock:
            return self._connection.execute(question, values).fetchall()

    def tell(self, listener: Callable[[Notice], None]) -> None:
        """Leave it: a file tells nobody, and whoever asks it hears of everything."""

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


class PostgreSQLChanges:
    """Listens in a thread of its own; while it cannot, every stamp is a new one."""

    def __init__(self, engine: Engine) -> None:
        # psycopg wants its own form of the address.
        self._address = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._heard = self._heard_served = self._heard_broad = 0
        self._sender = sender(engine)
        self._listeners: list[Callable[[Notice], None]] = []
        self._listening = False
        self._closed = threading.Event()
        self._ended, self._end = socket.socketpair()  # to be woken by when it is time to close
        self._thread = threading.Thread(target=self._listen, name="changes", daemon=True)
        self._thread.start()

    def stamp(self) -> object:
        """Give what was heard and written here without saying for which links, or something new when deaf."""
        return (self._heard_broad, broad_writes_here()) if self._listening else object()

    def served_stamp(self) -> object:
        """Give what was heard of and what this process wrote itself, or something new when deaf."""
        return (self._heard_served, writes_here()) if self._listening else object()

    def any_stamp(self) -> object:
        """Give what was heard of at all, or something new when deaf."""
        return (self._heard, writes_here()) if self._listening else object()

    def deciding(self, link_key: int) -> tuple[int | None, int] | None:
        """Say nothing: a question takes as long as a session's."""
        return None

    def in_place(self, question: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        """Say nothing."""
        return []

    def tell(self, listener: Callable[[Notice], None]) -> None:
        """Call a listener, from the listening thread, with what other processes write link by link."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._end.close()
        self._thread.join(timeout=CLOSE_SECONDS)
        self._ended.close()

    def _listen(self) -> None:
        import psycopg  # here, for a service on SQLite needs none of it

        while not self._closed.is_set():
            try:
                with psycopg.connect(self._address, autocommit=True, connect_timeout=5, **KEEP_ALIVE) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._hear_of(Notice(Kind.SERVED))  # whatever was missed before
                    self._listening = True
                    with selectors.DefaultSelector() as either:  # select itself knows only the first 1,024 descriptors
                        either.register(connection.fileno(), selectors.EVENT_READ)
                        either.register(self._ended.fileno(), selectors.EVENT_READ)
                        while not self._closed.is_set():
                            either.select()
                            for told in connection.notifies(timeout=0):
                                self._hear_of(read(told.payload))
            except (psycopg.Error, OSError, ValueError) as problem:
                log.warning("not listening to the database", extra={"reason": type(problem).__name__})
            finally:
                self._listening = False
            self._closed.wait(RECONNECT_SECONDS)

    def _hear_of(self, notice: Notice) -> None:
        if notice.link_keys and notice.sender != self._sender:
            for listener in self._listeners:
                listener(notice)
        self._heard_broad += notice.kind is Kind.SERVED
        self._heard_served += notice.kind is not Kind.OTHER
        self._heard += 1
