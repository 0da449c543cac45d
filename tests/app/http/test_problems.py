"""Every error has one shape."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from sqlalchemy import exc
from starlette.testclient import TestClient

from app.core.errors import RULES, FieldError, NotFound, ProblemType, Unavailable
from app.http.problems import SECONDS, ProblemBody, field_errors, problem_responses
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
        body = problem(client.get("/v1/nothing"), 404)
        assert body["type"] == "/problems/not-found"
        assert body["instance"] == "/v1/nothing"

    def test_unknown_method_names_all_that_are_possible(self, client):
        answer = client.request("TRACE", "/v1/links/A")
        problem(answer, 405)
        assert answer.headers["Allow"] == "DELETE, GET, PATCH, PUT"

    def test_missing_key_says_how_to_send_one(self, service):
        with TestClient(service) as keyless:
            answer = keyless.get("/v1/links")
        problem(answer, 401)
        assert "X-API-Key" in answer.headers["WWW-Authenticate"]

    def test_each_refused_value_is_named(self, client):
        body = problem(client.post("/v1/admin/keys", json={"scopes": ["reed"], "colour": "red"}), 422)
        assert {(error["field"], error["value"], error["reason"]) for error in body["errors"]} == {
            ("name", "", "is required"),
            ("scopes.0", "reed", "must be 'read', 'ingest' or 'admin'"),
            ("colour", "red", "is not known here"),
        }
        assert body["detail"] == "3 values are refused; the first: name is required"

    @pytest.mark.parametrize(
        "content",
        [b"{", b'{"name": "\xff"}', b"[" * 100_000, b'{"name": ' + b"9" * 5000 + b"}", b"\x00", b'{"name": "\\ud800"}'],
    )
    def test_a_body_that_is_no_json_is_refused(self, client, content):
        answer = client.post("/v1/admin/keys", content=content, headers={"Content-Type": "application/json"})
        assert problem(answer, 422)["errors"][0]["field"] in ("body", "name")

    @pytest.mark.parametrize("name", RAISED)
    def test_what_a_route_may_raise(self, failing, name):
        answer = failing.get(f"/v1/raise/{name}")
        body = problem(answer, RAISED[name][1])
        assert ("Retry-After" in answer.headers) == (answer.status_code == 503)
        assert "SELECT" not in answer.text
        assert "INSERT" not in answer.text
        assert body["instance"] == f"/v1/raise/{name}"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {"loc": ("query", "from"), "type": "x", "msg": "Input should be a date", "input": "x" * 200},
            ("from", "x" * 99 + "…", "must be a date"),
        ),
        (
            {"loc": ("body", "a"), "type": "x", "msg": "Value error, it must be odd", "input": True},
            ("a", "true", "must be odd"),
        ),
        ({"loc": ("body", 7), "type": "json_invalid", "msg": "", "ctx": {"error": "Expecting value"}},
         ("body", "", "must be JSON; Expecting value at character 7")),
        ({"loc": ("body",), "type": "x", "msg": "Input should be a text", "input": 10**5000},
         ("body", "a very long number", "must be a text")),
    ],
)  # fmt: skip
def test_pydantic_s_errors_in_our_words(error, expected):
    assert field_errors([error], {"a": True}) == [expected]


LINK_RULE = "must be 1 to 64 letters, digits, dots, underscores, colons or dashes"
POSITION_RULE = "must be [longitude, latitude] or [longitude, latitude, altitude]"


def line(*coordinates: object) -> dict:
    return {"zone": "UTC", "geometry": {"type": "LineString", "coordinates": coordinates}}


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PUT", "/v1/links/A", line([1, 2], [3, 400]),
         {"geometry.coordinates.1.1": "must be less than or equal to 90"}),
        ("PUT", "/v1/links/A", line([1, 2], [3]), {"geometry.coordinates.1": POSITION_RULE}),
        ("PUT", "/v1/links/A", line([1, 2]), {"geometry.coordinates": "must have at least 2 items"}),
        ("PUT", "/v1/links/A", {"geometry": {"type": "Point"}}, {"geometry.coordinates": "is required"}),
        ("PUT", "/v1/links/A", {"geometry": {"coordinates": [1, 2]}}, {"geometry.type": "is required"}),
        ("PUT", "/v1/links/A", {"geometry": [1, 2]}, {"geometry": "must be an object"}),
        ("PUT", "/v1/links/A", [], {"body": "must be an object"}),
        ("PUT", "/v1/links/A%20B", {"zone": "UTC"}, {"link_id": LINK_RULE}),
        ("POST", "/v1/links", {"links": [{"link_id": "a b", "capacity": 0}]},
         {"links.0.link_id": LINK_RULE, "links.0.capacity": "must be greater than 0"}),
        ("POST", "/v1/links", {"type": "FeatureCollection", "features": [{"type": "Feature"}]},
         {"features.0.properties": "is required"}),
        ("POST", "/v1/links", {"links": [{"link_id": "A", "zone": "UTC"}, {"link_id": "B"}]},
         {"links.1.zone": "is required for the new link 'B': an IANA name such as Europe/Berlin, unless "
          "FLOWCAST_DEFAULT_ZONE is set"}),
        ("POST", "/v1/counts", {}, {"counts": "is required"}),
        ("POST", "/v1/counts", {"counts": {}}, {"counts": "must be a list"}),
        ("POST", "/v1/counts", {"counts": [], "more": 1}, {"more": "is not known here; known is counts"}),
        ("POST", "/v1/counts", [5], {"body": 'must be an object: {"counts": [ … ]}'}),
        ("POST", "/v1/counts", {"counts": [5]},
         {"counts.0": "must be an object of link_id, slot_start, count and perhaps quality"}),
        ("POST", "/v1/counts?partial=perhaps", {"counts": []}, {"partial": "must be true or false"}),
        ("POST", "/v1/admin/retrain", {"links": "some"}, {"links": "must be a list, or 'all'"}),
        ("POST", "/v1/admin/retrain", {"links": ["a b"]}, {"links.0": LINK_RULE}),
        ("POST", "/v1/admin/retrain", {"links": {"a": 1}},
         {"links": "must be a list, or 'all'"}),
        ("POST", "/v1/admin/retrain", {"links": "all", "parameters": {"lags": "4", "mu": [-1]}},
         {"parameters.lags": "must be a whole number", "parameters.mu.0": "must be greater than or equal to 0"}),
        ("POST", "/v1/admin/keys", {"name": "\0", "scopes": []},
         {"name": "must not contain the character NUL", "scopes": "must have at least 1 item"}),
        ("GET", "/v1/links?limit=x&cursor=a%20b", None, {"limit": "must be a whole number", "cursor": LINK_RULE}),
        ("GET", "/v1/admin/audit?cursor=x", None, {"cursor": "must be next_cursor of the page before, unchanged"}),
    ],
)  # fmt: skip
def test_fields_are_named_as_the_client_wrote_them(shared_client, method, path, body, expected):
    body = problem(shared_client.request(method, path, json=body), 422)
    assert {error["field"]: error["reason"] for error in body["errors"]} == expected


@pytest.mark.parametrize("path", ["/v1/links", "/v1/admin/keys", "/v1/counts", "/v1/admin/retrain"])
def test_a_body_of_another_media_type_is_refused_by_the_header(shared_client, path):
    # curl sends this one unless it is given another.
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = problem(shared_client.post(path, content=b'{"links": "all"}', headers=headers), 415)
    assert (body["errors"][0]["field"], body["errors"][0]["value"]) == ("Content-Type", headers["Content-Type"])
    assert "application/json" in body["errors"][0]["reason"]


@pytest.mark.parametrize(
    ("links", "field"),
    [
        ([{"link_id": "A", "zone": "UTC", "upstream": ["B"]}], "links.0.upstream"),
        ([{"link_id": "A", "zone": "UTC"}, {"link_id": "A", "zone": "UTC"}], "links.1.link_id"),
        ([{"link_id": "B", "zone": "UTC"}, {"link_id": "A", "zone": "UTC", "upstream": ["A"]}], "links.1.upstream"),
    ],
)
def test_a_link_of_a_batch_is_named_by_its_place(shared_client, links, field):
    (error,) = problem(shared_client.post("/v1/links", json={"links": links}), 409)["errors"]
    assert error["field"] == field


def test_a_line_that_is_no_json_is_named_by_its_number(shared_client):
    lines, headers = b'{"link_id": "A"}\n\nnone\n', {"Content-Type": "application/x-ndjson"}
    assert (
        "at line 3 column" in problem(shared_client.post("/v1/counts", content=lines, headers=headers), 422)["detail"]
    )


def test_the_kind_of_a_geometry_is_refused_by_its_type(shared_client):
    circle = {"zone": "UTC", "geometry": {"type": "Circle", "coordinates": [1, 2]}}
    (error,) = problem(shared_client.put("/v1/links/A", json=circle), 422)["errors"]
    assert (error["field"], error["value"]) == ("geometry.type", "Circle")
    assert error["reason"].startswith("must be one of 'Point', 'MultiPoint'")


def test_every_regular_expression_has_a_rule_in_words(openapi_document):
    def patterns(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("pattern"), str):
                yield part["pattern"]
            part = list(part.values())
        for inner in part if isinstance(part, list) else ():
            yield from patterns(inner)

    used = set(patterns(openapi_document["paths"])) | set(patterns(openapi_document["components"]["schemas"]))
    assert len(used) > 10
    assert used - {SECONDS["schema"]["pattern"]} <= RULES.keys()  # that of Retry-After, which only the service writes


def test_refusals_have_types_of_their_own(client, put_link):
    put_link("A")
    count = {"link_id": "A", "slot_start": "2025-09-15T08:00:00Z", "count": 4}
    assert client.get("/v1/links/A/forecast").json()["type"] == "/problems/no-counts"
    client.post("/v1/counts", json={"counts": [count]}).raise_for_status()
    run = client.post("/v1/admin/retrain", json={"links": ["A"]}).raise_for_status().json()["run_id"]
    requests = [
        ("DELETE", "/v1/links/A", None, "link-in-use"),
        ("PATCH", "/v1/links/A", {"zone": "Europe/Berlin"}, "link-in-use"),
        ("PATCH", "/v1/links/A", {"slot_minutes": 5}, "link-in-use"),
        ("PATCH", "/v1/links/A", {"upstream": ["B"]}, "invalid-upstream"),
        ("POST", "/v1/links", {"links": [{"link_id": "A"}, {"link_id": "A"}]}, "duplicate-link"),
        ("GET", "/v1/links/A/forecast?as_of=2026-01-01T00:00:00Z", None, "after-newest-count"),
        ("GET", "/v1/links/A/forecast?as_of=2025-01-01T00:00:00Z", None, "too-little-history"),
        ("POST", "/v1/admin/retrain", {"links": ["A"]}, "run-in-progress"),
        ("POST", "/v1/admin/retrain", {"links": "all", "algorithm": "NETWORK", "refresh": True}, "not-refreshable"),
        ("POST", "/v1/admin/links/A/models/deactivate", None, "no-active-model"),
        ("POST", "/v1/admin/webhooks", {"url": "http://example.org", "events": ["forecast"]}, "webhook-host"),
        ("DELETE", f"/v1/admin/retrain/{run}", None, None),
        ("DELETE", f"/v1/admin/retrain/{run}", None, "run-finished"),
    ]
    for method, path, body, expected in requests:
        answer = client.request(method, path, json=body)
        if expected is not None:
            assert problem(answer, 409)["type"] == f"/problems/{expected}", (method, path)


def test_every_conflict_of_the_document_names_its_types(openapi_document):
    conflicts = [
        operation["responses"]["409"]["description"]
        for methods in openapi_document["paths"].values()
        for operation in methods.values()
        if "409" in operation["responses"]
    ]
    named = {uri for description in conflicts for uri in re.findall("/problems/[a-z-]+", description)}
    assert named == {one.uri for one in ProblemType if one.status == 409}


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
        assert problem_responses(ProblemType.NOT_FOUND)[404]["content"] == {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        }
