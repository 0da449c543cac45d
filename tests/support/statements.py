"""The statements that this process executes on any database.

SQLAlchemy's listeners cannot be added or removed while another thread executes a statement, as those of a service do.
So there is one listener, added when this module is imported, and it calls the observers of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event

Observer = Callable[[Connection, str, Any], object]  # the parameters of one row, where there are several

_observers: tuple[Observer, ...] = ()


@event.listens_for(Engine, "before_cursor_execute")
def _call_observers(
    connection: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool
) -> None:
    for observer in _observers:
        observer(connection, statement, parameters[0] if many else parameters)


@contextmanager
def observed_statements(observer: Observer) -> Iterator[None]:
    """Call an observer before each statement, in whatever thread it is executed."""
    global _observers
    _observers = (*_observers, observer)
    try:
        yield
    finally:
        _observers = tuple(one for one in _observers if one is not observer)
