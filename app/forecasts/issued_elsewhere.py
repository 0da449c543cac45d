"""What other processes issued, read over a connection that stays open.

With several processes, forecasts of each other's are read all the time, by each of them. A session would ask
whether its connection is alive, begin, ask and roll back; here there is one question, and numbers come as they are
instead of as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, PoolProxiedConnection

from app.forecasts.issue import Statement
from app.forecasts.queries import ISSUED_POSTGRESQL, statements_asked_for
from app.links.queries import LinkInfo


class IssuedElsewhere:
    """Reads forecasts from PostgreSQL, for one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: PoolProxiedConnection | None = None

    def read(self, links: Sequence[LinkInfo], as_of: dict[int, int]) -> dict[tuple[int, int], Statement]:
        """Give what was issued from the slots ``as_of``, by link key and model version."""
        if self._open is not None:
            try:
                return self._read(links, as_of)
            except Exception:  # it may have been cut since it was last used, so a new one is tried
                self.close()
        self._open = self._engine.raw_connection()
        try:
            self._driver.autocommit = True
            return self._read(links, as_of)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._open is not None:
            self._open.invalidate()  # and not given back: the pool's have transactions
            self._open = None

    @property
    def _driver(self) -> Any:
        assert self._open is not None
        return self._open.driver_connection

    def _read(self, links: Sequence[LinkInfo], as_of: dict[int, int]) -> dict[tuple[int, int], Statement]:
        return statements_asked_for(self._ask, links, as_of)

    @contextmanager
    def _ask(self, keys: list[int], as_of: tuple[int, ...]) -> Iterator[Any]:
        with self._driver.cursor(binary=True) as cursor:
            cursor.execute(ISSUED_POSTGRESQL, (keys, *as_of))
            yield cursor
