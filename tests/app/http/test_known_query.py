"""A query parameter that a call does not know is refused by name, but not to strangers."""

import pytest
from starlette.testclient import TestClient

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
