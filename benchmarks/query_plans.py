"""The queries of a piece of code, and PostgreSQL's plans for them: planning time and scanned months."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event

MONTH = re.compile(r"^(?:counts|forecasts)_\d{4}_\d{2}$")


@dataclass(frozen=True)
class QueryPlan:
    """The plan of one query."""

    query: str
    months: frozenset[str]  # that the plan scans, or may scan
    milliseconds: float  # of planning


@contextmanager
def recorded_queries(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Record the queries of counts and forecasts in a block, with their parameters."""
    queries: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH")) and re.search(r"\b(counts|forecasts)\b", statement):
            queries.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    try:
        yield queries
    finally:
        event.remove(engine, "before_cursor_execute", record)


def explain_query(connection: Connection, statement: str, parameters: Any) -> QueryPlan:
    """Return PostgreSQL's plan of a query."""
    explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON, SUMMARY) {statement}", parameters).scalar_one()[0]
    return QueryPlan(statement, frozenset(_months(explained["Plan"])), float(explained["Planning Time"]))


def _months(node: dict[str, Any]) -> Iterator[str]:
    if MONTH.match(name := node.get("Relation Name", "")):
        yield name
    for child in node.get("Plans", []):
        yield from _months(child)
