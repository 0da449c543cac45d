"""Answers as CSV: a header line, a row each, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import Response

from app.core.csv_cells import as_cell
from app.http.media_types import CSV


class CsvResponse(Response):
    """Rows by the names of their columns; null is an empty cell."""

    media_type = CSV

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Mapping[str, object]], headers: Mapping[str, str] | None = None
    ) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
        super().__init__(text.getvalue(), headers=headers)


def csv_answer(columns: Sequence[str]) -> dict[str, Any]:
    """Document an answer as CSV, for ``responses=`` of a route."""
    return {CSV: {"schema": {"type": "string", "description": f"Columns: {', '.join(columns)}"}}}


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return as_cell(value) if isinstance(value, str) else value
