"""A database with a city, for measuring a service: SQLite in a file, or a real PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier
from rich.console import Console
from sqlalchemy import URL, Engine

from app.core.database import is_sqlite, open_database
from app.core.schema import upgrade_schema
from app.settings import Settings
from benchmarks.model_city import ModelCity
from tests.support.postgresql import own_postgresql


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a real PostgreSQL and yield the address of an empty database in it."""
    with own_postgresql() as server:
        yield server.create("serving")


@contextmanager
def prepared(
    url: str, folder: Path, links: int, notes: Console, *, network: bool = False
) -> Iterator[tuple[Engine, ModelCity, dict[str, str]]]:
    """Fill a database with links, counts and active models; yield them with the service's settings."""
    settings = {
        "FLOWCAST_DATABASE_URL": url,
        "FLOWCAST_MODEL_STORE": str(folder / "models"),
        # The counts are weeks old: without this, profiles would replace all forecasts.
        "FLOWCAST_STALE_AFTER_MINUTES": "1000000",
    }
    engine = open_database(Settings(database_url=url).database_url)
    upgrade_schema(engine)
    yield engine, ModelCity.build(engine, folder / "models", links, notes, network=network), settings
    engine.dispose()


@contextmanager
def copied(engine: Engine, name: str) -> Iterator[tuple[Engine, str]]:
    """Copy a database without other connections; yield the copy with its address."""
    engine.dispose()
    url = engine.url.set(database=f"{engine.url.database}_{name}")
    if is_sqlite(engine):
        shutil.copyfile(str(engine.url.database), str(url.database))
    else:
        names = Identifier(str(url.database)), Identifier(str(engine.url.database))
        server = _text(url.set(drivername="postgresql", database="postgres"))
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    copy = open_database(_text(url))
    yield copy, _text(url)
    copy.dispose()


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
