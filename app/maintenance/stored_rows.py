"""The rows of a table as they are stored, in an order that is the same in every database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Integer,
    String,
    Table,
    Text,
    cast,
    collate,
    func,
    select,
    type_coerce,
)

BATCH = 5_000  # rows in memory at a time

Row = Sequence[Any]


def count_rows(connection: Connection, table: Table) -> int:
    """Count the rows of a table."""
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def days_of(connection: Connection, table: Table) -> Sequence[int]:
    """Return the days in UTC whose slots a table has, by the Unix second of their beginning."""
    slot = table.columns["slot_start"]
    return connection.execute(select(slot - slot % 86_400).distinct()).scalars().all()


def batches_of(connection: Connection, table: Table) -> Iterator[Sequence[Row]]:
    """Return all rows in the order of their primary key, a batch at a time; JSON as the text that is stored."""
    question = select(*(_as_stored(connection, column) for column in table.columns))
    question = question.order_by(*(_alike(connection, column) for column in table.primary_key.columns))
    found = connection.execute(question, execution_options={"yield_per": BATCH})
    yield from found.partitions(BATCH)


def rows_of(connection: Connection, table: Table) -> Iterator[Row]:
    """Return the same rows one by one."""
    for batch in batches_of(connection, table):
        yield from batch


def key_places(table: Table) -> list[int]:
    """Return the places of the primary key's columns in a row."""
    names = list(table.columns.keys())
    return [names.index(column.name) for column in table.primary_key.columns]


def number_column(table: Table) -> str | None:
    """Name the column whose values the database gives by counting; None where the key is given from outside."""
    columns = list(table.primary_key.columns)
    counted = len(columns) == 1 and isinstance(columns[0].type, Integer) and not columns[0].foreign_keys
    return columns[0].name if counted else None


def _as_stored(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    # Read and written again, JSON would lose the difference between NULL and null, and the form of its numbers.
    if not isinstance(column.type, JSON):
        return column
    return cast(column, Text) if connection.dialect.name == "postgresql" else type_coerce(column, Text)


def _alike(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    # SQLite sorts text by its bytes; PostgreSQL by the language it was set up in by default.
    if isinstance(column.type, String) and connection.dialect.name == "postgresql":
        return collate(column, "C")
    return column
