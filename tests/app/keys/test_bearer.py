"""A key may come as `Authorization: Bearer`, and is the same key: same scopes, limits, audit and refusals."""

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY

pytestmark = on_sqlite


@pytest.fixture
def stranger(service):
    """A client that sends no key of its own."""
    with TestClient(service) as client:
        yield client


def bearer(key, scheme="Bearer"):
    return {"Authorization": f"{scheme} {key}"}


@pytest.fixture
def keys(stranger):
    """A key of each scope."""
    made = {}
    for scope in ("read", "ingest"):
        body = {"name": scope, "scopes": [scope]}
        answer = stranger.post("/v1/admin/keys", json=body, headers=bearer(ADMIN_KEY))  # a body is let in by it, too
        assert answer.status_code == 201, answer.text
        made[scope] = answer.json()
    return made


def test_it_opens_what_the_key_opens(stranger, keys):
    for key, status in ((keys["read"]["key"], 200), (keys["ingest"]["key"], 403), ("nobody", 401), ("", 401)):
        assert stranger.get("/v1/links", headers=bearer(key)).status_code == status
    assert stranger.get("/v1/key", headers=bearer(keys["read"]["key"])).json()["key_id"] == keys["read"]["key_id"]
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert stranger.get("/v1/links", headers=bearer(keys["read"]["key"], scheme)).status_code == 200
    for scheme in ("Basic", "Token", "Bearers"):
        refused = stranger.get("/v1/links", headers=bearer(keys["read"]["key"], scheme))
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'ApiKey header="X-API-Key", Bearer'
        assert "Authorization: Bearer" in refused.json()["detail"]


def test_where_both_are_sent_the_header_of_its_own_counts(stranger, keys):
    read, other = keys["read"]["key"], keys["ingest"]["key"]
    assert stranger.get("/v1/links", headers={"X-API-Key": read, **bearer(other)}).status_code == 200
    assert stranger.get("/v1/links", headers={"X-API-Key": other, **bearer(read)}).status_code == 403
    assert stranger.get("/v1/links", headers={"X-API-Key": "wrong", **bearer(read)}).status_code == 401
    assert stranger.get("/v1/links", headers={"X-API-Key": "", **bearer(read)}).status_code == 200


def test_the_audit_names_the_key(stranger, keys):
    calls = stranger.get("/v1/admin/audit", headers=bearer(ADMIN_KEY)).json()["calls"]
    assert [(call["key_id"], call["path"]) for call in calls] == [("environment", "/v1/admin/keys")] * 2


def test_a_forecast_that_lies_ready_is_sent_to_it(city, stranger, keys):
    path = f"/v1/links/{next(iter(city.counts))}/forecast"
    for _ in range(2):  # the second from memory
        assert stranger.get(path, headers=bearer(keys["read"]["key"])).status_code == 200
        assert stranger.get(path, headers=bearer(keys["ingest"]["key"])).status_code == 403
        assert stranger.get(path, headers=bearer("nobody")).status_code == 401


def test_wrong_ones_are_limited_as_ever(settings):
    with TestClient(create_app(settings.model_copy(update={"rate_limit": 3}))) as stranger:
        statuses = [stranger.get("/v1/links", headers=bearer(f"fc_wrong_{i}")).status_code for i in range(5)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert stranger.get("/v1/links", headers=bearer(ADMIN_KEY)).status_code == 200


def test_events_are_streamed_to_it(settings):
    with TestClient(create_app(settings.model_copy(update={"stream_seconds": 0.05}))) as stranger:
        assert "event: ready" in stranger.get("/v1/events", headers=bearer(ADMIN_KEY)).text
        assert stranger.get("/v1/events", headers=bearer("nobody")).status_code == 401


def test_other_origins_may_send_it(settings):
    with TestClient(create_app(settings.model_copy(update={"cors_origins": "https://map.example"}))) as client:
        asked = {
            "Origin": "https://map.example",
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "Authorization",
        }
        answer = client.options("/v1/forecasts", headers=asked)
        assert answer.status_code == 200
        assert "authorization" in answer.headers["access-control-allow-headers"].lower()
