"""Ask for many keys at once, as one parameter: ``in_values(Link.link_key, keys)``.

``IN`` with a parameter for each key is written anew, key by key, whenever it is asked; databases also bound how many
there may be. PostgreSQL takes an array instead, and SQLite a JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Self

from sqlalchemy import ARRAY, BigInteger, Boolean, ColumnElement, Dialect, String, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator, TypeEngine


def array_text(column: Sequence[float | None]) -> str:
    """Write numbers as the text of an array."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in column]) + "}"


class _Many(TypeDecorator[list[Any]]):
    """Many values of one type in one parameter."""

    impl = Text
    cache_ok = True

    def __init__(self, item: type[BigInteger | String]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose an array where there are arrays."""
        return dialect.type_descriptor(ARRAY(self.item) if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        """Write the values as the database takes them."""
        return value if dialect.name == "postgresql" else json.dumps(value)


_NUMBERS, _TEXTS = _Many(BigInteger), _Many(String)


class _Among(FunctionElement[bool]):
    name = "in_values"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:
        """Return itself: SQLAlchemy would compare a function with 1 on SQLite, which then uses no index."""
        return self


@compiles(_Among)
def _in_json(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # nosec B608 # a parameter, as SQLAlchemy writes it


@compiles(_Among, "postgresql")
def _in_array(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} = ANY ({values})"


def in_values(
    column: InstrumentedAttribute[int] | InstrumentedAttribute[str], values: Collection[int] | Collection[str]
) -> ColumnElement[bool]:
    """Return the condition that a column has one of these values."""
    kind = _TEXTS if isinstance(column.type, String) else _NUMBERS
    return _Among(column, bindparam(None, list(values), type_=kind, unique=True))
