"""Databases with a long history, filled by SQL alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import Engine, insert, text
from sqlalchemy.engine import make_url

from app.core.database import is_sqlite, open_database, writing
from app.core.partitions import month_begin, month_name, month_of
from app.core.schema import upgrade_schema
from app.forecasts.issued_forecast import HORIZONS
from app.forecasts.tables import METHODS
from app.links.tables import Link
from app.settings import Settings
from tests.support.postgresql import own_postgresql

SLOT = 900
Report = Callable[[int], None]

# In the order of a live feed: slot after slot, with all links in each.
_COUNTS = """
    INSERT INTO {name}
    SELECT link_key, slot, 40 + mod(link_key * 31 + slot / 900 * 7, 60), 0
    FROM generate_series({first}::bigint, {last}::bigint, 900) AS slot, links
    WHERE slot >= {begin} AND slot < {end}
"""
# On SQLite in the order of the primary key, a million rows at a time.
_SQLITE = """
    WITH RECURSIVE slots (slot) AS (SELECT {first} UNION ALL SELECT slot + 900 FROM slots WHERE slot < {last})
    INSERT INTO {name} {rows}
"""
_SQLITE_COUNTS = """
    SELECT link_key, slot, 40 + (link_key * 31 + slot / 900 * 7) % 60, 0 FROM links CROSS JOIN slots
"""
_SQLITE_FORECASTS = f"""
    SELECT link_key, slot + 900 * horizon, horizon, 0, 40 + (link_key * 31 + slot / 900 * 5) % 60, 20, 120, 0.9, 50,
        {METHODS.index("profile")}, 'no_model', 0, (slot + 900) * 1000000
    FROM links CROSS JOIN slots CROSS JOIN (
        SELECT column1 AS horizon FROM (VALUES {", ".join(f"({horizon})" for horizon in range(1, HORIZONS + 1))})
    )
"""
ROWS_AT_ONCE = 1_000_000
_FORECASTS = f"""
    INSERT INTO {{name}}
    SELECT link_key, as_of + 900 * horizon, horizon, 0, 40 + mod(link_key * 31 + as_of / 900 * 5, 60), 20, 120, 0.9,
        50, {METHODS.index("profile")}, 'no_model', 0, (as_of + 900) * 1000000
    FROM generate_series({{first}}::bigint, {{last}}::bigint, 900) AS as_of,
        generate_series(1, {HORIZONS}) AS horizon, links
    WHERE as_of + 900 * horizon >= {{begin}} AND as_of + 900 * horizon < {{end}}
"""


@dataclass(frozen=True)
class History:
    """A database with so many rows of counts and as many of forecasts."""

    url: str
    links: int
    rows: int
    last: int  # start of the newest slot with a count

    @property
    def slots(self) -> int:
        """Number of slots with counts."""
        return self.rows // self.links

    @property
    def forecast_slots(self) -> int:
        """Number of slots that forecasts were issued at."""
        return self.rows // (self.links * HORIZONS)

    def load(self, report: Report) -> Engine:
        """Insert links, counts and forecasts; call ``report`` with the numbers of new rows."""
        engine = open_database(Settings(database_url=self.url).database_url)
        upgrade_schema(engine)
        now = datetime.now(UTC)
        row = {"zone": "Europe/Berlin", "slot_minutes": 15, "created_at": now, "updated_at": now}
        with writing(engine) as session:
            session.execute(insert(Link), [{"link_id": f"L{i:04}", "name": "", **row} for i in range(self.links)])
        if is_sqlite(engine):
            self._fill_sqlite(engine, "counts", _SQLITE_COUNTS, self.slots, report)
            self._fill_sqlite(engine, "forecasts", _SQLITE_FORECASTS, self.forecast_slots, report)
            with engine.connect() as connection:
                connection.exec_driver_sql("ANALYZE")
            return engine
        first = self.last - SLOT * (self.slots - 1)
        self._fill(engine, "counts", _COUNTS, first, self.last, report)
        first = self.last - SLOT * (self.forecast_slots - 1)
        self._fill(engine, "forecasts", _FORECASTS, first, self.last + HORIZONS * SLOT, report)
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))
        return engine

    def _fill(self, engine: Engine, table: str, rows: str, first: int, end: int, report: Report) -> None:
        for month in range(month_of(first), month_of(end) + 1):
            name, begin, after = f"{table}_{month_name(month)}", month_begin(month), month_begin(month + 1)
            # Slots with a row in the month: a forecast is issued up to four slots before its own.
            span = {"first": max(first, begin - HORIZONS * SLOT), "last": min(self.last, after)}
            with engine.begin() as connection:
                # Keys are created after the rows, in a tenth of the time.
                connection.exec_driver_sql(
                    f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
                )
                done = connection.exec_driver_sql(rows.format(name=name, begin=begin, end=after, **span)).rowcount
                connection.exec_driver_sql(
                    f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({after})"
                )
            report(done)

    def _fill_sqlite(self, engine: Engine, table: str, rows: str, slots: int, report: Report) -> None:
        slots_at_once = max(1, ROWS_AT_ONCE // self.links)
        for begin in range(0, slots, slots_at_once):
            first = self.last - SLOT * (slots - 1 - begin)
            last = min(self.last, first + SLOT * (slots_at_once - 1))
            with writing(engine) as session:
                statement = _SQLITE.format(first=first, last=last, name=table, rows=rows)
                session.connection().exec_driver_sql(statement)
            report(self.links * (HORIZONS if table == "forecasts" else 1) * ((last - first) // SLOT + 1))

    def size(self, engine: Engine) -> dict[str, Any]:
        """Return the numbers of counts and forecasts, the months they are kept in, and the size of the database."""
        queries = {"rows": "SELECT count(*) FROM counts", "forecasts": "SELECT count(*) FROM forecasts"}
        if is_sqlite(engine):
            queries["months"] = "SELECT 1"
            queries["size"] = (
                "SELECT page_count * page_size / 1000000 || ' MB' FROM pragma_page_count, pragma_page_size"
            )
        else:
            queries["months"] = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'counts'::regclass"
            queries["size"] = "SELECT pg_size_pretty(pg_database_size(current_database()))"
        with engine.connect() as connection:
            return {name: connection.exec_driver_sql(query).scalar_one() for name, query in queries.items()}


def newest_slot() -> int:
    """Return the start of the last slot that has ended."""
    return int(time.time()) // SLOT * SLOT - SLOT


@contextmanager
def databases(kind: str, server: str | None, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Create empty databases on SQLite, a given PostgreSQL or a temporary one, and remove them at the end."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="flowcast-history-") as folder:
            yield [f"sqlite:///{folder}/{name}.db" for name in names]
        return
    with _server(server) as address, psycopg.connect(address, autocommit=True) as connection:
        try:
            for name in names:
                connection.execute(f"CREATE DATABASE {name}".encode())
            yield [_named(address, name) for name in names]
        finally:
            for name in names:
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def _named(address: str, name: str) -> str:
    return make_url(address).set(database=name).render_as_string(hide_password=False)


@contextmanager
def _server(address: str | None) -> Iterator[str]:
    if address is not None:
        yield address
        return
    with own_postgresql() as server:
        yield server.url("postgres")
