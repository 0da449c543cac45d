"""CSV responses, and cells that a spreadsheet does not evaluate.

A spreadsheet evaluates a text that begins with ``=`` or ``-`` as a formula, unless an apostrophe precedes it. No link
id begins with an apostrophe, so a reader can remove it. Numbers need none: a negative one is not a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

CSV = "text/csv"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARK = "'"


def as_cell(text: str) -> str:
    """Return a text for a cell, marked as text where it could be evaluated as a formula."""
    return MARK + text if text.startswith(FORMULA) else text


def from_cell(cell: str) -> str:
    """Return the text of a cell without the mark."""
    return cell[1:] if cell.startswith(MARK) and cell[1:].startswith(FORMULA) else cell


class CsvResponse(Response):
    """A response of rows, which are mappings of column names to values; None becomes an empty cell."""

    media_type = CSV

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Mapping[str, object]], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(_as_text(columns, rows), headers=headers)


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return rows of a CSV without the line of its columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def csv_content(columns: Sequence[str], example: Mapping[str, object]) -> dict[str, Any]:
    """Document an answer as CSV with a row of it, for ``responses=`` of a route."""
    schema = {"type": "string", "description": f"Columns: {', '.join(columns)}"}
    return {CSV: {"schema": schema, "example": _as_text(columns, [example])}}


def _as_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    return ",".join(columns) + "\n" + csv_lines(columns, rows)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return as_cell(value) if isinstance(value, str) else value
