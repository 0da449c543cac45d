"""Parts of a request: numbers, query parameters, and the media types that its caller accepts."""

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError
from starlette.testclient import TestClient

from app.http.csv import CSV
from app.http.requests import JSON, WHOLE, preferred_type
from tests.support.databases import on_sqlite

NUMBER = TypeAdapter(Annotated[int, Field(ge=1, le=10), WHOLE])
CALLS = [
    ("GET", "/v1/links"),
    ("GET", "/v1/links/A"),
    ("GET", "/v1/links/A/counts"),
    ("GET", "/v1/links/A/forecast"),
    ("GET", "/v1/links/A/models"),
    ("GET", "/v1/forecasts"),
    ("GET", "/v1/accuracy"),
    ("GET", "/v1/health"),
    ("GET", "/v1/admin/keys"),
    ("POST", "/v1/counts"),
    ("POST", "/v1/import"),
]
GEOJSON = "application/geo+json"
# Reads and the media types that they return, JSON left out.
READS = {
    "/v1/links": [GEOJSON],
    "/v1/links/{link_id}": [],
    "/v1/links/{link_id}/counts": [CSV],
    "/v1/links/{link_id}/forecast": [CSV],
    "/v1/links/{link_id}/forecasts": [CSV],
    "/v1/forecasts": [CSV, GEOJSON],
    "/v1/links/{link_id}/accuracy": [CSV],
    "/v1/accuracy": [CSV],
    "/v1/links/{link_id}/health": [],
    "/v1/health": [],
    "/v1/links/{link_id}/models": [],
    "/v1/key": [],
    "/v1/admin/audit": [],
    "/v1/admin/retrain": [],
}


@pytest.mark.parametrize("given", [3, 3.0])
def test_whole_numbers_are_taken(given):
    assert NUMBER.validate_python(given) == 3


@pytest.mark.parametrize("given", ["3", True, 3.5, float("nan"), float("inf"), None, 0, 11, 1e300])
def test_anything_else_is_refused(given):
    with pytest.raises(ValidationError):
        NUMBER.validate_python(given)


def test_bounds_stay_in_the_schema():
    assert NUMBER.json_schema() == {"type": "integer", "minimum": 1, "maximum": 10}


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_an_unknown_parameter_is_refused_by_name(shared_client: TestClient, method: str, path: str) -> None:
    answer = shared_client.request(method, path, params={"horizn": "2"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "horizn"
    assert "is not known here" in answer.json()["detail"]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_stranger_is_told_only_that_a_key_is_needed(shared_client: TestClient, method: str, path: str) -> None:
    answer = shared_client.request(method, path, params={"horizn": "2"}, headers={"X-API-Key": "wrong"})
    assert answer.status_code == 401


def test_the_parameters_of_a_call_are_named(shared_client: TestClient) -> None:
    detail = shared_client.get("/v1/links?lmit=5").json()["detail"]
    assert "known are cursor, limit" in detail


def test_a_known_parameter_passes(shared_client: TestClient) -> None:
    assert shared_client.get("/v1/links?limit=5").status_code == 200
    assert shared_client.head("/v1/links?limit=5").status_code == 200


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        ("text/csv", CSV),
        ("text/*", CSV),
        ("TEXT/CSV; charset=utf-8", CSV),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        ("application/json;q=0.5, text/csv", CSV),
        ("text/csv;q=0.5, */*;q=0.4", CSV),
        ("application/json;q=0, */*", CSV),
        ("text/html", None),
        ("text/csv;q=0", None),
        ("text/csv;q=nonsense", None),
        ("", None),
    ],
)
def test_the_most_specific_wish_decides(accept, chosen):
    assert preferred_type(accept, (JSON, CSV)) == chosen


@on_sqlite
def test_every_read_returns_what_it_offers_and_refuses_the_rest(client, city):
    for path in READS:
        address = path.replace("{link_id}", next(iter(city.counts)))
        for accept in (None, "*/*", JSON, "application/*", f"text/html, {JSON};q=0.9", "text/html, */*;q=0.1"):
            answer = client.get(address, headers={} if accept is None else {"Accept": accept})
            assert (answer.status_code, answer.headers["content-type"]) == (200, JSON), (path, accept)
        for media_type in READS[path]:
            answer = client.get(address, headers={"Accept": f"{media_type}, {JSON};q=0.5"})
            assert answer.status_code == 200
            assert answer.headers["content-type"].partition(";")[0] == media_type
        for accept in ("text/html", "image/png, text/html", "application/json;q=0", *({CSV, GEOJSON} - {*READS[path]})):
            answer = client.get(address, headers={"Accept": accept})
            assert (answer.status_code, answer.headers["content-type"]) == (406, "application/problem+json"), (
                path,
                accept,
            )
            assert answer.json()["type"] == "/problems/not-acceptable"
            assert all(offered in answer.json()["detail"] for offered in (accept[:100], JSON, *READS[path]))


@on_sqlite
def test_accept_headers_may_be_several(client, city):
    headers = [("Accept", "text/html"), ("Accept", CSV)]
    path = f"/v1/links/{next(iter(city.counts))}/forecast"
    assert client.get(path, headers=headers).headers["content-type"].startswith(CSV)


@on_sqlite
def test_problems_stay_problems_and_strangers_learn_nothing(client, put_link):
    put_link("A", zone="UTC")
    for path, status in (("/v1/links/B/forecast", 404), ("/v1/links/A/forecast", 409), ("/v1/accuracy?from=x", 422)):
        answer = client.get(path, headers={"Accept": CSV})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    answer = client.get("/v1/forecasts", headers={"Accept": "text/html", "X-API-Key": "nobody"})
    assert answer.status_code == 401


@on_sqlite
def test_what_is_stored_matters_more_than_how_its_report_is_written(client, put_link):
    put_link("A", zone="UTC")
    counts = {"counts": [{"link_id": "A", "slot_start": "2025-09-01T00:00:00Z", "count": 3}]}
    answer = client.post("/v1/counts", json=counts, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["stored"]) == (200, 1)


def test_the_document_names_every_media_type(openapi_document):
    paths = openapi_document["paths"]
    for path, others in READS.items():
        responses = paths[path]["get"]["responses"]
        assert set(responses["200"]["content"]) == {JSON, *others}, path
        assert list(responses["406"]["content"]) == ["application/problem+json"]
    assert "406" not in paths["/v1/counts"]["post"]["responses"]
