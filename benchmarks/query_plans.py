"""The questions that a piece of code asks PostgreSQL, and how it plans them: how long, and in how many months."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event

MONTH = re.compile(r"^(?:counts|forecasts)_\d{4}_\d{2}$")


@dataclass(frozen=True)
class Plan:
    """How one question is planned."""

    question: str
    months: frozenset[str]  # that it looks into, or is ready to
    milliseconds: float  # of planning


@contextmanager
def questions_of(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Collect the questions about counts and forecasts that are asked meanwhile, with their parameters."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH")) and re.search(r"\b(counts|forecasts)\b", statement):
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plan_of(connection: Connection, statement: str, parameters: Any) -> Plan:
    """Let PostgreSQL plan a question."""
    told = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON, SUMMARY) {statement}", parameters).scalar_one()[0]
    return Plan(statement, frozenset(_months(told["Plan"])), float(told["Planning Time"]))


def _months(node: dict[str, Any]) -> Iterator[str]:
    if MONTH.match(name := node.get("Relation Name", "")):
        yield name
    for child in node.get("Plans", []):
        yield from _months(child)
