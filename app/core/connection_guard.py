"""The line to PostgreSQL: cut when the server stops answering, and closed until it answers again.

A server that is gone refuses, and says so at once. One that hangs takes a statement and never answers;
whoever waits for it would wait for ever, and soon every thread would. No timeout of a statement helps, for
the server itself would have to keep it, and keepalives do not, for its kernel still answers them.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Engine, event

_lines: WeakKeyDictionary[Engine, ConnectionGuard] = WeakKeyDictionary()
_alone = threading.Lock()


class ConnectionGuard:
    """The connections of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.away = False  # while True, nobody is made to wait for a connection that will not come
        self._open: WeakSet[Any] = WeakSet()
        event.listen(engine, "do_connect", self._refuse)
        event.listen(engine, "connect", self._note)

    def cut(self) -> None:
        """End every connection, so that whoever waits for an answer hears that none will come."""
        for connection in list(self._open):
            cut(connection)

    def _refuse(self, dialect: Any, _record: Any, _arguments: Any, _parameters: Any) -> None:
        if self.away:
            raise dialect.loaded_dbapi.OperationalError("the database is away")

    def _note(self, connection: Any, _record: Any) -> None:
        self._open.add(connection)


def guard_of(engine: Engine) -> ConnectionGuard:
    """Return the line of an engine, the same to all who ask."""
    with _alone:
        if engine not in _lines:
            _lines[engine] = ConnectionGuard(engine)
        return _lines[engine]


def cut(connection: Any) -> None:
    """End a connection that another thread may be waiting on; only that thread may close it."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:  # it may be closed already
        line.shutdown(socket.SHUT_RDWR)
