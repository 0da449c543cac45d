"""A guard for connections to PostgreSQL: cut when the server stops answering, refused until it answers again.

A server that is down refuses at once. One that hangs accepts a statement and never answers, and soon every thread
would wait for it. A statement timeout does not help, because the server itself enforces it, and keepalives do not,
because its kernel still answers them.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Engine, event

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
