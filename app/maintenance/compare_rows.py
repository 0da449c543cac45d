"""Compare a table in two databases, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, Table

from app.maintenance.stored_rows import BATCH, Row, key_places, rows_of


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
