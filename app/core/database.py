"""The database: its engine, its sessions, and what all tables share."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import DateTime, Dialect, Engine, MetaData, create_engine, event, exc, text
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.types import TypeDecorator

from app.core.pg_notify import Kind, sender, written

CONSTRAINT_NAMES = {
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}
BUSY_SECONDS = 30
POOL_SECONDS = 10  # that a request waits for its turn at one of the connections
# A server, or the way to it, may be gone without a word. In seconds, but for the last.
CONNECTING: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
AWAY = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError)  # what a database that cannot be used fails with
READ_ONLY = "25006"  # PostgreSQL's code for a write that it does not take, as from a standby
CHANNEL = "flowcast_changes"  # on which PostgreSQL notifies listeners that something was written

_CONCERNS = "flowcast.concerns"  # where a session stores which links its changes concern

_writes = 0  # of what is served
_broad_writes = 0  # those of them that did not say which links they concern


class Table(DeclarativeBase):
    """What all tables share: constraints with names that a migration can use."""

    metadata = MetaData(naming_convention=CONSTRAINT_NAMES)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: TIMESTAMP WITH TIME ZONE where there is one, UTC without an offset in SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Store in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} carries no offset; instants are stored in UTC")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return back in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def open_database(url: str, *, pool_size: int = 10) -> Engine:
    """Open the database; SQLite in WAL mode, with foreign keys, waiting for its turn to write."""
    parts = make_url(url)
    if parts.get_backend_name() != "sqlite":
        wanted = {name: value for name, value in CONNECTING.items() if name not in parts.query}
        engine = create_engine(
            parts,
            pool_size=pool_size,
            max_overflow=20,
            pool_pre_ping=True,
            pool_timeout=POOL_SECONDS,
            connect_args=wanted,
        )
        event.listen(engine, "connect", _prepare_postgresql)
        event.listen(engine, "handle_error", _on_read_only)
        return engine
    if parts.database:
        Path(parts.database).parent.mkdir(parents=True, exist_ok=True)
    # autocommit=True hands BEGIN to us: a transaction that will write must say so when it begins.
    engine = create_engine(
        parts, pool_size=pool_size, max_overflow=20, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _on_read_only(context: ExceptionContext) -> exc.OperationalError | None:
    """Treat a server that takes no writes like one that cannot be reached, and drop all connections to it.

    A connection keeps its server and its mode: only a new one can find that writes are possible again.
    """
    problem = context.original_exception
    if getattr(problem, "sqlstate", None) != READ_ONLY:
        return None
    context.is_disconnect = True
    return exc.OperationalError(context.statement, context.parameters, problem, connection_invalidated=True)


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    # A plan for whatever slots may be asked for would lock every month of a table, each time it is used.
    # Compiling a query to machine code, on servers that can, takes longer than any of these queries.
    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_custom_plan")
        cursor.execute("SET jit = off")
    connection.commit()


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "foreign_keys=ON",
        f"busy_timeout={BUSY_SECONDS * 1000}",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")
    try:
        connection.execute("SELECT sqrt(1.0)")
    except sqlite3.OperationalError:  # SQLite before 3.35, or built without its mathematical functions
        connection.create_function("sqrt", 1, _sqrt, deterministic=True)


def _sqrt(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _begin_sqlite(connection: Any) -> None:
    # A transaction that reads first and then writes cannot be made to wait: it fails at once when
    # another wrote in between. So writers take their turn at the start.
    options = connection.get_execution_options()
    if options.get("writes"):
        connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if options.get('derived') else 'FULL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN DEFERRED")


def read_session(engine: Engine) -> Session:
    """Return a session that stores nothing and sees one state of the database, however many queries it makes."""
    if not is_sqlite(engine):  # SQLite's transactions always do
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    return Session(engine, expire_on_commit=False)


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Open a session that stores nothing and sees one state of the database."""
    with read_session(engine) as session:
        yield session


@contextmanager
def writing(engine: Engine, *, derived: bool = False, served: bool = True) -> Iterator[Session]:
    """Return a session whose changes are committed at the end, or not at all.

    Processes that serve from memory are notified.

    What is committed survives a power cut. ``derived`` data need not: it can be made again from
    what does, and is spared the wait for the disk. ``served`` states whether a forecast may change by
    it; the progress of a run, for one, changes none.
    """
    global _writes, _broad_writes
    options = {"writes": True, "derived": derived}
    with Session(engine.execution_options(**options), expire_on_commit=False) as session, session.begin():
        if derived and not is_sqlite(engine):
            session.execute(text("SET LOCAL synchronous_commit = off"))
        yield session
        told = session.info.get(_CONCERNS, [(Kind.SERVED if served else Kind.OTHER, (), 0)])
        if not is_sqlite(engine):
            for kind, link_keys, as_of in told:
                for notice in written(kind, sender(engine), link_keys, as_of):
                    session.execute(text("SELECT pg_notify(:channel, :notice)"), {"channel": CHANNEL, "notice": notice})
    _writes += any(kind not in (Kind.OTHER, Kind.NOTHING) for kind, _, _ in told)
    _broad_writes += any(kind is Kind.SERVED for kind, _, _ in told)


def concerns(session: Session, kind: Kind, link_keys: Sequence[int] = (), as_of: int = 0) -> None:
    """Record that a session's writes change the forecasts of these links alone, if any; calls add up."""
    session.info.setdefault(_CONCERNS, []).append((kind, link_keys, as_of))


def database_now(session: Session) -> datetime:
    """Return the time of the one clock that all hosts on a database share; for SQLite that is this machine's."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.now(UTC)
    now: datetime = session.execute(text("SELECT clock_timestamp()")).scalar_one()
    return now.astimezone(UTC)


def writes_here() -> int:
    """Count the write transactions of this process that may have changed a forecast."""
    return _writes


def broad_writes_here() -> int:
    """Count those that did not say which links they concern."""
    return _broad_writes


def takes_writes(session: Session) -> bool:
    """Return whether the database takes writes; a PostgreSQL that stands by, or was set to read-only, does not."""
    if session.get_bind().dialect.name == "sqlite":
        return True
    # Not transaction_read_only: a transaction may be so by its own choice.
    question = "SELECT NOT (pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean)"
    return bool(session.execute(text(question)).scalar_one())


def is_sqlite(engine: Engine) -> bool:
    """Return whether the database is SQLite."""
    return engine.dialect.name == "sqlite"
