"""Copy a whole database into another one, of either kind: all of it, checked row by row, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    cast,
    collate,
    func,
    inspect,
    select,
    text,
    type_coerce,
)

from app.core.database import is_sqlite, writing
from app.core.partitions import MONTHLY, ensure_months
from app.core.schema import NEWEST_STEP, schema_step, upgrade_schema
from app.maintenance.tables import ALL_TABLES

BATCH = 5_000  # rows in memory at a time
MOST_DIFFERENCES = 20  # listed one by one

Row = Sequence[Any]
Advance = Callable[[str, int], None]


class CannotCopy(Exception):
    """The databases cannot be copied; nothing was written."""


class Difference(NamedTuple):
    """A row that is not the same in both databases."""

    table: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"table {self.table}, {self.key}: {self.what}"


class CopyDiffers(Exception):
    """Rows that are not in the target as they are in the source; nothing was copied."""

    def __init__(self, found: Sequence[Difference], more: bool) -> None:
        super().__init__(f"{'more than ' if more else ''}{len(found)} rows differ")
        self.found, self.more = found, more


def all_tables() -> list[Table]:
    """Return all tables, those that others refer to first."""
    return ALL_TABLES.sorted_tables


@contextmanager
def snapshot(source: Engine) -> Iterator[Connection]:
    """Open a connection that reads one state of a database, without what is written meanwhile."""
    with source.connect() as connection:
        if not is_sqlite(source):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield connection


def prepare_target(source: Engine, target: Engine) -> None:
    """Upgrade the target's schema; refuse a source of another version and a target that holds rows."""
    step = schema_step(source) or "none"
    if step != NEWEST_STEP:
        raise CannotCopy(
            f"the source's schema is at step {step}, this version needs {NEWEST_STEP}: flowcast db upgrade"
        )
    with target.connect() as connection:
        existing = set(inspect(connection).get_table_names())
        _require_empty(connection, [table for table in all_tables() if table.name in existing])
    upgrade_schema(target)


def copy_database(source: Connection, target: Engine, advance: Advance) -> None:
    """Copy every table of a snapshot in one transaction, which is committed once every row was compared.

    ``advance`` is called with rows copied and rows compared, so that each row comes up twice.
    """
    with writing(target) as session:
        connection = session.connection()
        if not is_sqlite(target):
            names = ", ".join(table.name for table in all_tables())
            connection.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")  # no other writer until all is copied
        _require_empty(connection, all_tables())
        for name in MONTHLY:
            slot = ALL_TABLES.tables[name].columns["slot_start"]
            days = source.execute(select(slot - slot % 86_400).distinct()).scalars().all()
            ensure_months(session, name, days)
        for table in all_tables():
            _copy_table(source, connection, table, advance)
        for table in all_tables():
            _set_last_number(connection, table, _last_number(source, table))
        _require_same(source, connection, advance)
    if not is_sqlite(target):  # SQLite plans well without
        with target.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("ANALYZE"))


def count_rows(connection: Connection, table: Table) -> int:
    """Count the rows of a table."""
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def rows_of(connection: Connection, table: Table) -> Iterator[Row]:
    """Return all rows as they are stored, in an order that is the same in every database."""
    for batch in _batches_of(connection, table):
        yield from batch


def _batches_of(connection: Connection, table: Table) -> Iterator[Sequence[Row]]:
    """Return all rows in the order of their primary key, a batch at a time; JSON as the text that is stored."""
    query = select(*(_as_stored(connection, column) for column in table.columns))
    query = query.order_by(*(_in_byte_order(connection, column) for column in table.primary_key.columns))
    yield from connection.execute(query, execution_options={"yield_per": BATCH}).partitions(BATCH)


def _as_stored(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    # Read and written again, JSON would lose the difference between NULL and null, and the form of its numbers.
    if not isinstance(column.type, JSON):
        return column
    return cast(column, Text) if not is_sqlite(connection) else type_coerce(column, Text)


def _in_byte_order(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    # SQLite sorts text by its bytes; PostgreSQL by the language it was set up in by default.
    if isinstance(column.type, String) and not is_sqlite(connection):
        return collate(column, "C")
    return column


def _require_empty(connection: Connection, tables: Sequence[Table]) -> None:
    for table in tables:
        rows = count_rows(connection, table)
        if rows:
            raise CannotCopy(f"the target has rows already: {rows} in table {table.name}; it must be empty")


def _copy_table(source: Connection, target: Connection, table: Table, advance: Advance) -> None:
    write = _write_sqlite if is_sqlite(target) else _write_postgresql
    try:
        write(target, table, _batches_of(source, table), advance)
    except psycopg.Error as problem:  # of COPY, which SQLAlchemy does not translate
        where = (problem.diag.context or "").splitlines()
        reason = str(problem).splitlines()[0]
        raise CannotCopy(f"table {table.name}: {reason}" + (f" ({where[0]})" if where else "")) from problem


def _write_postgresql(target: Connection, table: Table, batches: Iterator[Sequence[Row]], advance: Advance) -> None:
    driver = target.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    # Quoted by the dialect, for "count" and the like.
    quote = target.dialect.identifier_preparer.quote
    columns = ", ".join(quote(name) for name in list(table.columns.keys()))
    with driver.cursor() as cursor, cursor.copy(f"COPY {quote(table.name)} ({columns}) FROM STDIN".encode()) as copy:
        for batch in batches:
            for row in batch:
                copy.write_row(row)
            advance(table.name, len(batch))


def _write_sqlite(target: Connection, table: Table, batches: Iterator[Sequence[Row]], advance: Advance) -> None:
    # As text, JSON is stored exactly as it was read.
    types = {column.name: Text() if isinstance(column.type, JSON) else column.type for column in table.columns}
    plain = Table(table.name, MetaData(), *(Column(name, kind) for name, kind in types.items()))
    for batch in batches:
        target.execute(plain.insert(), [dict(zip(types, row, strict=True)) for row in batch])
        advance(table.name, len(batch))


def _last_number(connection: Connection, of: Table) -> int:
    """Return the highest number that a table's rows ever had, as far as the database remembers; 0 for none."""
    name = _number_column(of)
    if name is None:
        return 0
    highest = connection.execute(select(func.max(of.columns[name]))).scalar() or 0
    if not is_sqlite(connection):
        sequence = _sequence(connection, of, name)
        found = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}")  # nosec B608 # ours, quoted
        last, used = found.one()
        return max(highest, int(last) if used else 0)
    if _remembers_numbers(of):
        given = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
        return max(highest, connection.execute(given, {"name": of.name}).scalar() or 0)
    return highest


def _set_last_number(connection: Connection, of: Table, number: int) -> None:
    """Set the sequence of a table, so that its next row gets the number after this one."""
    name = _number_column(of)
    if name is None or number == 0:
        return
    if not is_sqlite(connection):
        connection.execute(
            text("SELECT setval(CAST(:sequence AS regclass), :number)"),
            {"sequence": _sequence(connection, of, name), "number": number},
        )
    elif _remembers_numbers(of):
        values = {"name": of.name, "seq": number}
        if not connection.execute(text("UPDATE sqlite_sequence SET seq = :seq WHERE name = :name"), values).rowcount:
            # No row was ever inserted.
            connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)"), values)


def _number_column(of: Table) -> str | None:
    """Return the column whose values the database gives by counting; None where keys are given from outside."""
    columns = list(of.primary_key.columns)
    counted = len(columns) == 1 and isinstance(columns[0].type, Integer) and not columns[0].foreign_keys
    return columns[0].name if counted else None


def _sequence(connection: Connection, of: Table, name: str) -> str:
    query = text("SELECT pg_get_serial_sequence(:table, :column)")
    return str(connection.execute(query, {"table": of.name, "column": name}).scalar_one())


def _remembers_numbers(of: Table) -> bool:
    """Return whether SQLite remembers the numbers of rows that were deleted."""
    return bool(of.dialect_options["sqlite"]["autoincrement"])


def _require_same(source: Connection, target: Connection, advance: Advance) -> None:
    found: list[Difference] = []
    for table in all_tables():
        for difference in _differences(source, target, table, advance):
            if len(found) == MOST_DIFFERENCES:
                raise CopyDiffers(found, more=True)
            found.append(difference)
    if found:
        raise CopyDiffers(found, more=False)


def _differences(source: Connection, target: Connection, table: Table, advance: Advance) -> Iterator[Difference]:
    """Walk through both tables in the order of the primary key, and yield every row that differs."""
    names = list(table.columns.keys())
    key_places = [names.index(column.name) for column in table.primary_key.columns]

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[place] for place in key_places)

    def difference(row: Row, what: str) -> Difference:
        return Difference(table.name, ", ".join(f"{names[place]}={row[place]!r}" for place in key_places), what)

    rows, copies = rows_of(source, table), rows_of(target, table)
    row, copy, seen = next(rows, None), next(copies, None), 0
    while row is not None or copy is not None:
        if row is None or (copy is not None and key(copy) < key(row)):
            assert copy is not None
            yield difference(copy, "not in the source")
            copy = next(copies, None)
            continue
        if copy is None or key(row) < key(copy):
            yield difference(row, "missing in the target")
        else:
            # A value that does not equal itself is NaN.
            differs = [name for name, a, b in zip(names, row, copy, strict=True) if a != b and (a == a or b == b)]
            if differs:
                yield difference(row, f"{', '.join(differs)} differs")
            copy = next(copies, None)
        row, seen = next(rows, None), seen + 1
        if seen % BATCH == 0:
            advance(table.name, BATCH)
    advance(table.name, seen % BATCH)
