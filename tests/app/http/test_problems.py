"""Every error has one shape."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from sqlalchemy import exc
from starlette.testclient import TestClient

from app.core.errors import FieldError, NotFound, Unavailable
from app.http.problems import ProblemBody, field_error, problem_responses
from app.main import create_app
from app.settings import Settings
from tests.support.services import ADMIN_KEY

FIELDS = {"type", "title", "status", "detail", "instance", "errors", "request_id"}
RAISED = {
    "away": (exc.OperationalError("SELECT 1", {}, sqlite3.OperationalError("server gone")), 503),
    "busy": (exc.TimeoutError("no connection left"), 503),
    "faster": (exc.IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE")), 503),
    "nul": (exc.DataError("INSERT", {}, sqlite3.DataError("NUL")), 422),
    "huge": (OverflowError("int too large"), 422),
    "ours": (Unavailable("the registry is unreachable"), 503),
    "lone": (NotFound("no \ud800", [FieldError("link_id", "\ud800", "must be text")]), 404),
}


@pytest.fixture
def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """One database is enough here: no middleware uses one."""
    shutil.copy(sqlite_template, tmp_path / "flowcast.db")
    return f"sqlite:///{tmp_path}/flowcast.db"


def raising(app: FastAPI) -> FastAPI:
    @app.get("/v1/raise/{name}")
    async def fail(name: str) -> None:
        raise RAISED[name][0]

    return app


@pytest.fixture
def failing(settings: Settings) -> Iterator[TestClient]:
    with TestClient(raising(create_app(settings)), headers={"X-API-Key": ADMIN_KEY}) as client:
        yield client


def problem(answer, status: int) -> dict:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert set(body) == FIELDS
    ProblemBody.model_validate(body)
    assert body["status"] == status
    assert body["request_id"] == answer.headers["X-Request-ID"]
    return body


class TestShape:
    def test_unknown_path(self, client):
        told = problem(client.get("/v1/nothing"), 404)
        assert told["type"] == "/problems/not-found"
        assert told["instance"] == "/v1/nothing"

    def test_unknown_method_names_all_that_are_possible(self, client):
        answer = client.request("TRACE", "/v1/links/A")
        problem(answer, 405)
        assert answer.headers["Allow"] == "DELETE, GET, PATCH, PUT"

    def test_missing_key_says_how_to_send_one(self, service):
        with TestClient(service) as stranger:
            answer = stranger.get("/v1/links")
        problem(answer, 401)
        assert "X-API-Key" in answer.headers["WWW-Authenticate"]

    def test_each_refused_value_is_named(self, client):
        told = problem(client.post("/v1/admin/keys", json={"scopes": ["reed"], "colour": "red"}), 422)
        assert {(error["field"], error["value"], error["reason"]) for error in told["errors"]} == {
            ("body.name", "", "is required"),
            ("body.scopes.0", "reed", "must be 'read', 'ingest' or 'admin'"),
            ("body.colour", "red", "is not known here"),
        }
        assert told["detail"].startswith("3 values are refused; the first: body.")

    @pytest.mark.parametrize(
        "content",
        [b"{", b'{"name": "\xff"}', b"[" * 100_000, b'{"name": ' + b"9" * 5000 + b"}", b"\x00", b'{"name": "\\ud800"}'],
    )
    def test_a_body_that_is_no_json_is_refused(self, client, content):
        answer = client.post("/v1/admin/keys", content=content, headers={"Content-Type": "application/json"})
        assert problem(answer, 422)["errors"][0]["field"].startswith("body")

    @pytest.mark.parametrize("name", RAISED)
    def test_what_a_route_may_raise(self, failing, name):
        answer = failing.get(f"/v1/raise/{name}")
        told = problem(answer, RAISED[name][1])
        assert ("Retry-After" in answer.headers) == (answer.status_code == 503)
        assert "SELECT" not in answer.text
        assert "INSERT" not in answer.text
        assert told["instance"] == f"/v1/raise/{name}"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {"loc": ("query", "from"), "type": "x", "msg": "Input should be a date", "input": "x" * 200},
            ("query.from", "x" * 99 + "…", "must be a date"),
        ),
        (
            {"loc": ("body", "a"), "type": "x", "msg": "Value error, it must be odd", "input": True},
            ("body.a", "true", "must be odd"),
        ),
        ({"loc": ("body", 7), "type": "json_invalid", "msg": "", "ctx": {"error": "Expecting value"}},
         ("body", "", "must be JSON; Expecting value at character 7")),
        ({"loc": ("body",), "type": "x", "msg": "Input should be a text", "input": 10**5000},
         ("body", "a very long number", "must be a text")),
    ],
)  # fmt: skip
def test_pydantic_s_errors_in_our_words(error, expected):
    assert field_error(error) == expected


class TestDocumentation:
    def test_every_call_documents_what_may_go_wrong(self, openapi_document):
        schema = openapi_document
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                documented = set(operation["responses"])
                if not path.startswith("/v1/"):
                    assert "security" not in operation
                    continue
                assert operation["security"] == [{"key": []}, {"bearer": []}], (method, path)
                assert {"401", "403", "422", "429", "503"} <= documented
                assert ("413" in documented) >= ("requestBody" in operation)
                assert "404" in documented or "{" not in path
                for status in documented & {"401", "403", "404", "409", "413", "422", "429", "503"}:
                    assert "application/problem+json" in operation["responses"][status]["content"], (path, status)
        assert "HTTPValidationError" not in schema["components"]["schemas"]
        assert "Problem" in schema["components"]["schemas"]

    def test_every_tag_is_described(self, openapi_document):
        schema = openapi_document
        used = {tag for item in schema["paths"].values() for operation in item.values() for tag in operation["tags"]}
        assert used <= {tag["name"] for tag in schema["tags"]}

    def test_both_ways_to_send_a_key_are_listed(self, openapi_document):
        schemes = openapi_document["components"]["securitySchemes"]
        assert {name: scheme["type"] for name, scheme in schemes.items()} == {"key": "apiKey", "bearer": "http"}
        assert schemes["bearer"]["scheme"] == "bearer"

    def test_a_route_may_document_more(self):
        assert problem_responses(404)[404]["content"] == {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        }
