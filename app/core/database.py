"""The database: its engine, its sessions and their notices, and what all tables and queries share."""

from __future__ import annotations

import math
import secrets
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Engine,
    MetaData,
    String,
    bindparam,
    create_engine,
    event,
    exc,
    func,
    select,
    text,
)
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator

CONSTRAINT_NAMES = {
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}
BUSY_SECONDS = 30
POOL_SECONDS = 10  # that a request waits for a connection
# A server, or the network on the way to it, may fail silently. In seconds, except the last, which is in milliseconds.
CONNECTING: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
UNREACHABLE = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError)  # raised while the database cannot be used
CHANNEL = "flowcast_changes"  # of notices between processes
MOST_KEYS = 700  # in one notice, of ten digits each: PostgreSQL limits notices to 8,000 bytes
PROCESS = secrets.token_hex(6)
READ_ONLY = "25006"  # PostgreSQL's code for a write to a server that is read-only, such as a standby

_RECORDED = "flowcast.changes"  # where a session keeps what it changes


class Table(DeclarativeBase):
    """Base class of all tables, whose constraints have names that a migration can use."""

    metadata = MetaData(naming_convention=CONSTRAINT_NAMES)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: TIMESTAMP WITH TIME ZONE in PostgreSQL, UTC without an offset in SQLite."""

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
        """Return in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def open_database(url: str) -> Engine:
    """Open the database; SQLite in WAL mode, with foreign keys, and with writers that wait for each other."""
    parts = make_url(url)
    pool: dict[str, Any] = {"pool_size": 10, "max_overflow": 20}
    if parts.get_backend_name() != "sqlite":
        arguments = {name: value for name, value in CONNECTING.items() if name not in parts.query}
        pool |= {"pool_pre_ping": True, "pool_timeout": POOL_SECONDS}
        engine = create_engine(parts, connect_args=arguments, **pool)
        event.listen(engine, "connect", _prepare_postgresql)
        event.listen(engine, "handle_error", _on_read_only)
        return engine
    if parts.database:
        Path(parts.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parts, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}, **pool)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _on_read_only(context: ExceptionContext) -> exc.OperationalError | None:
    """Treat a read-only server as unreachable, and drop all connections to it.

    A connection keeps its server and the server's mode, so only a new one can find that writes are possible again.
    """
    problem = context.original_exception
    if getattr(problem, "sqlstate", None) != READ_ONLY:
        return None
    context.is_disconnect = True
    return exc.OperationalError(context.statement, context.parameters, problem, connection_invalidated=True)


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    # A generic plan, for any slots, would lock every month of a table each time it is used.
    # Compiling a query to machine code takes longer than any of these queries.
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
    # another wrote in between. So writers wait for each other at the start.
    options = connection.get_execution_options()
    if options.get("writes"):
        connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if options.get('derived') else 'FULL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN DEFERRED")


def reading(engine: Engine) -> Session:
    """Return a session that stores nothing and sees one state of the database, however many queries it makes."""
    if not is_sqlite(engine):  # SQLite's transactions always do
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    return Session(engine, expire_on_commit=False)


@contextmanager
def writing(engine: Engine, *, derived: bool = False, served: bool = True) -> Iterator[Session]:
    """Open a session whose changes are committed at the end, or not at all.

    Processes that serve from memory are notified. What is committed survives a power cut. ``derived`` data need not: it
    can be computed again from what does, and does not wait for the disk. ``served`` states whether the changes may
    change a forecast; the progress of a run, for example, changes none.
    """
    options = {"writes": True, "derived": derived}
    with Session(engine.execution_options(**options), expire_on_commit=False) as session, session.begin():
        if derived and not is_sqlite(engine):
            session.execute(text("SET LOCAL synchronous_commit = off"))
        yield session
        changes = _publish_changes(session, Change.SERVED if served else Change.OTHER)
    own_writes.update(changes)


class Change(StrEnum):
    """Kinds of writes, by the forecasts that they may change."""

    SERVED = "served"  # may change any forecast
    OTHER = "other"  # changes no forecast
    COUNTS = "counts"  # counts that move links forward; their forecasts are about to be issued
    FORECASTS = "forecasts"  # forecasts of links
    NOTHING = "nothing"  # no process is notified


own_writes: Counter[Change] = Counter()  # transactions of this process, by what they wrote


def record_change(session: Session, change: Change, link_keys: Sequence[int] = ()) -> None:
    """Record that a session's writes change the forecasts of these links alone, if any; calls add up."""
    session.info.setdefault(_RECORDED, []).append((change, link_keys))


def _publish_changes(session: Session, default: Change) -> list[Change]:
    """Notify other processes, at the commit, of the recorded changes, or else of the default; return them."""
    recorded: list[tuple[Change, Sequence[int]]] = session.info.get(_RECORDED, [(default, ())])
    if not is_sqlite(session):
        sender = sender_name(session.get_bind().engine)
        for change, link_keys in recorded:
            for notice in format_notices(change, sender, link_keys):
                session.execute(select(func.pg_notify(CHANNEL, notice)))
    return [change for change, _ in recorded if change is not Change.NOTHING]


def sender_name(engine: Engine) -> str:
    """Return the name of an engine as a sender of notices; a change feed of the engine ignores its own."""
    return f"{PROCESS}{id(engine.dialect):x}"


def format_notices(change: Change, sender: str, link_keys: Sequence[int]) -> Iterator[str]:
    """Yield the notices of a change.

    A notice is one word, or word, sender and link keys: ``forecasts 5f0c2a 17,18,19``.
    """
    if change in (Change.SERVED, Change.OTHER):
        yield change.value
        return
    for begin in range(0, len(link_keys), MOST_KEYS):
        keys = ",".join(str(key) for key in link_keys[begin : begin + MOST_KEYS])
        yield f"{change.value} {sender} {keys}"


def database_now(session: Session) -> datetime:
    """Return the time of the one clock that all hosts on a database share; for SQLite that is this machine's."""
    if is_sqlite(session):
        return datetime.now(UTC)
    now: datetime = session.execute(text("SELECT clock_timestamp()")).scalar_one()
    return now.astimezone(UTC)


def takes_writes(session: Session) -> bool:
    """Return whether the database takes writes; a standby, or a PostgreSQL that was set to read-only, does not."""
    if is_sqlite(session):
        return True
    # Not transaction_read_only: a transaction may be so by its own choice.
    query = "SELECT NOT (pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean)"
    return bool(session.execute(text(query)).scalar_one())


def is_sqlite(database: Engine | Connection | Session) -> bool:
    """Return whether the database is SQLite."""
    bind = database.get_bind() if isinstance(database, Session) else database
    return bind.dialect.name == "sqlite"


def in_values(
    column: InstrumentedAttribute[int] | InstrumentedAttribute[str], values: Collection[int] | Collection[str]
) -> ColumnElement[bool]:
    """Return the condition that a column has one of these values, which are sent as one parameter.

    SQLAlchemy's ``in_`` sends a parameter for each value, and databases limit how many.
    """
    item = String() if isinstance(column.type, String) else BigInteger()
    many = ARRAY(item).with_variant(JSON(), "sqlite")
    return _InValues(column, bindparam(None, list(values), type_=many, unique=True))


class _InValues(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:
        """Return itself: SQLAlchemy would compare a function with 1 on SQLite, which then uses no index."""
        return self


@compiles(_InValues)
def _in_array(element: _InValues, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} = ANY ({values})"


@compiles(_InValues, "sqlite")
def _in_json(element: _InValues, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # nosec B608 # a parameter, as SQLAlchemy writes it


def array_text(column: Sequence[float | None]) -> str:
    """Return numbers as the text of a PostgreSQL array."""
    return "{" + ",".join("NULL" if value is None else str(value) for value in column) + "}"
