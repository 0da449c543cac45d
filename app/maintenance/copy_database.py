"""Copy a whole database into another one, of either kind: all of it, checked row by row, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    column,
    func,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy import (
    table as light_table,
)

from app.core.database import is_sqlite, writing
from app.core.partitions import MONTHLY, ensure_months
from app.core.schema import NEWEST_STEP, schema_step, upgrade_schema
from app.maintenance.all_tables import Table as Tables
from app.maintenance.stored_rows import BATCH, Row, batches_of, count_rows, days_of, key_places, number_column, rows_of


class Difference(NamedTuple):
    """A row that is not the same in both databases."""

    table: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"table {self.table}, {self.key}: {self.what}"


def compare_table(
    source: Connection, target: Connection, table: Table, advance: Callable[[int], None]
) -> Iterator[Difference]:
    """Walk through both in the order of the primary key, and give every row that differs."""
    places, names = key_places(table), list(table.columns.keys())
    here, there = rows_of(source, table), rows_of(target, table)
    one, other, seen = next(here, None), next(there, None), 0
    while one is not None or other is not None:
        if other is None or (one is not None and _key(one, places) < _key(other, places)):
            assert one is not None
            yield Difference(table.name, _named(one, places, names), "missing in the target")
            one = next(here, None)
        elif one is None or _key(other, places) < _key(one, places):
            yield Difference(table.name, _named(other, places, names), "not in the source")
            other = next(there, None)
            continue
        else:
            # What does not equal itself is NaN.
            differs = [name for name, a, b in zip(names, one, other, strict=True) if a != b and (a == a or b == b)]
            if differs:
                yield Difference(table.name, _named(one, places, names), f"{', '.join(differs)} differs")
            one, other = next(here, None), next(there, None)
        seen += 1
        if seen % BATCH == 0:
            advance(BATCH)
    advance(seen % BATCH)


def _key(row: Row, places: list[int]) -> tuple[object, ...]:
    return tuple(row[place] for place in places)


def _named(row: Row, places: list[int], names: list[str]) -> str:
    return ", ".join(f"{names[place]}={row[place]!r}" for place in places)


_SEQUENCES = light_table("sqlite_sequence", column("name"), column("seq"))


def last_number(connection: Connection, of: Table) -> int:
    """Return the highest number that a table's rows ever had, as far as the database remembers; 0 for none."""
    name = number_column(of)
    if name is None:
        return 0
    highest = connection.execute(select(func.max(of.columns[name]))).scalar() or 0
    if connection.dialect.name == "postgresql":
        sequence = _sequence(connection, of, name)
        found = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}")  # nosec B608 # ours, quoted
        last, used = found.one()
        return max(highest, int(last) if used else 0)
    if _never_again(of):
        given = connection.execute(select(_SEQUENCES.c.seq).where(_SEQUENCES.c.name == of.name)).scalar()
        return max(highest, given or 0)
    return highest


def go_on_after(connection: Connection, of: Table, number: int) -> None:
    """Set the sequence of a table, so that its next row gets the number after this one."""
    name = number_column(of)
    if name is None or number == 0:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT setval(CAST(:sequence AS regclass), :number)"),
            {"sequence": _sequence(connection, of, name), "number": number},
        )
    elif _never_again(of):
        changed = connection.execute(update(_SEQUENCES).where(_SEQUENCES.c.name == of.name).values(seq=number))
        if not changed.rowcount:  # no row was ever put in
            connection.execute(_SEQUENCES.insert().values(name=of.name, seq=number))


def _sequence(connection: Connection, of: Table, name: str) -> str:
    question = text("SELECT pg_get_serial_sequence(:table, :column)")
    return str(connection.execute(question, {"table": of.name, "column": name}).scalar_one())


def _never_again(of: Table) -> bool:
    """Return whether SQLite remembers the numbers of rows that are gone."""
    return bool(of.dialect_options["sqlite"]["autoincrement"])


MOST_DIFFERENCES = 20  # listed one by one

Advance = Callable[[str, int], None]


class CannotCopy(Exception):
    """Why nothing was copied."""


class CopyDiffers(Exception):
    """Rows that are not in the target as they are in the source; nothing was kept of the copy."""

    def __init__(self, found: Sequence[Difference], more: bool) -> None:
        super().__init__(f"{'more than ' if more else ''}{len(found)} rows differ")
        self.found, self.more = found, more


def all_tables() -> list[Table]:
    """Return all tables, those that others refer to first."""
    return Tables.metadata.sorted_tables


@contextmanager
def snapshot(source: Engine) -> Iterator[Connection]:
    """Read one state of a database, whatever is written to it meanwhile."""
    with source.connect() as connection:
        if not is_sqlite(source):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield connection


def prepare(source: Engine, target: Engine) -> None:
    """Bring the target's schema up to date; refuse a source of another version and a target that holds rows."""
    step = schema_step(source) or "none"
    if step != NEWEST_STEP:
        raise CannotCopy(
            f"the source's schema is at step {step}, this version needs {NEWEST_STEP}: flowcast db upgrade"
        )
    with target.connect() as connection:
        there = set(inspect(connection).get_table_names())
        _require_empty(connection, [table for table in all_tables() if table.name in there])
    upgrade_schema(target)


def copy_database(source: Connection, target: Engine, advance: Advance) -> None:
    """Copy every table of a snapshot in one transaction, which is committed once every row was compared.

    ``advance`` is called with rows copied and rows compared, so that each row comes up twice.
    """
    with writing(target) as session:
        connection = session.connection()
        if not is_sqlite(target):
            names = ", ".join(table.name for table in all_tables())
            connection.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")  # nobody writes until all is there
        _require_empty(connection, all_tables())
        for name in MONTHLY:
            ensure_months(session, name, days_of(source, Tables.metadata.tables[name]))
        for table in all_tables():
            _copy_table(source, connection, table, advance)
        for table in all_tables():
            go_on_after(connection, table, last_number(source, table))
        _require_same(source, connection, advance)
    if not is_sqlite(target):  # SQLite plans well without
        with target.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("ANALYZE"))


def _require_empty(connection: Connection, tables: Sequence[Table]) -> None:
    for table in tables:
        rows = count_rows(connection, table)
        if rows:
            raise CannotCopy(f"the target holds rows already: {rows} in table {table.name}; it must be empty")


def _copy_table(source: Connection, target: Connection, table: Table, advance: Advance) -> None:
    write = _write_sqlite if target.dialect.name == "sqlite" else _write_postgresql
    batches = batches_of(source, table)
    try:
        write(target, table, _told(batches, table.name, advance))
    except psycopg.Error as problem:  # of COPY, which SQLAlchemy does not know of
        where = (problem.diag.context or "").splitlines()
        reason = str(problem).splitlines()[0]
        raise CannotCopy(f"table {table.name}: {reason}" + (f" ({where[0]})" if where else "")) from problem


def _told(batches: Iterator[Sequence[Row]], name: str, advance: Advance) -> Iterator[Sequence[Row]]:
    for batch in batches:
        yield batch
        advance(name, len(batch))


def _write_postgresql(target: Connection, table: Table, batches: Iterator[Sequence[Row]]) -> None:
    driver = target.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    # Quoted by the dialect, for "count" and the like.
    quote = target.dialect.identifier_preparer.quote
    columns = ", ".join(quote(name) for name in list(table.columns.keys()))
    with driver.cursor() as cursor, cursor.copy(f"COPY {quote(table.name)} ({columns}) FROM STDIN".encode()) as copy:
        for batch in batches:
            for row in batch:
                copy.write_row(row)


def _write_sqlite(target: Connection, table: Table, batches: Iterator[Sequence[Row]]) -> None:
    # As text, JSON goes in the way it came out.
    types = {column.name: Text() if isinstance(column.type, JSON) else column.type for column in table.columns}
    plain = Table(table.name, MetaData(), *(Column(name, kind) for name, kind in types.items()))
    for batch in batches:
        target.execute(plain.insert(), [dict(zip(types, row, strict=True)) for row in batch])


def _require_same(source: Connection, target: Connection, advance: Advance) -> None:
    found: list[Difference] = []
    for table in all_tables():
        name = table.name
        for difference in compare_table(source, target, table, lambda n, name=name: advance(name, n)):  # type: ignore[misc]
            if len(found) == MOST_DIFFERENCES:
                raise CopyDiffers(found, more=True)
            found.append(difference)
    if found:
        raise CopyDiffers(found, more=False)
