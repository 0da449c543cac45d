"""On SQLite no query reads all counts or forecasts, of all links or of one: they are as long as the history."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from app.demo.city import City
from tests.support.city import SLOTS, TRAINED_DAYS, post, rows, slot_start
from tests.support.databases import on_sqlite
from tests.support.statements import observed_statements

WHOLE_TABLE = re.compile(r"SCAN (counts|forecasts)\b")
WHOLE_LINK = re.compile(r"SEARCH (counts|forecasts) USING \S+(?: \S+)?(?: \S+)? \(link_key=\?\)")
ONE_STEP = re.compile(r"max\(|min\(|count\(\*\)|^DELETE")  # the first or last of a link, or what is to be deleted
PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
PARAMETERS = {"horizon": "4", "corrections": "true", "by": "hour"}


@pytest.fixture
def statements() -> Iterator[dict[str, Any]]:
    """Record the statements that are executed, each with some parameters."""
    found: dict[str, Any] = {}

    with observed_statements(lambda _connection, statement, parameters: found.update({statement: parameters})):
        yield found


def plan(engine: Engine, statement: str, parameters: Any) -> str:
    with engine.connect() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return "\n".join(step[3] for step in steps)


@pytest.mark.journey
@on_sqlite
def test_no_request_reads_a_whole_table(
    statements: dict[str, Any], client: TestClient, city: City, openapi_document: dict[str, Any]
) -> None:
    engine: Engine = client.app.state.engine  # type: ignore[attr-defined]
    newest, links = TRAINED_DAYS * SLOTS, list(city.counts)
    asked = set()
    statements.clear()
    post(client, rows(city, newest, newest + 1))  # the next slot of every link
    post(client, rows(city, newest - 3, newest + 2, links[:1]))  # and corrections
    csv = "link_id,slot_start,count\n" + "".join(f"{link},{slot_start(city, newest + 5)},7\n" for link in links)
    assert client.post("/v1/import", content=csv).status_code == 200
    for path, operations in openapi_document["paths"].items():
        known = {parameter["name"] for parameter in operations.get("get", {}).get("parameters", ())}
        if "get" not in operations or "events" in path or known & {"run_id", "webhook_id", "version"}:
            continue
        query = {name: value for name, value in PARAMETERS.items() if name in known}
        answer = client.get(path.format(link_id=links[0]), params=query)
        assert answer.status_code == 200, answer.text
        asked.add(path)
    assert client.delete(f"/v1/links/{links[-1]}?force=true").status_code == 204
    assert {"/v1/accuracy", "/v1/health", "/v1/forecasts", "/v1/links/{link_id}/accuracy"} <= asked
    plans = {
        statement: plan(engine, statement, parameters)
        for statement, parameters in dict(statements).items()
        if statement.lstrip().startswith(PLANNED)
    }
    assert len(plans) > 30
    assert not {statement: plan for statement, plan in plans.items() if WHOLE_TABLE.search(plan)}
    of_a_link = {statement: plan for statement, plan in plans.items() if WHOLE_LINK.search(plan)}
    assert not {statement: plan for statement, plan in of_a_link.items() if not ONE_STEP.search(statement)}
