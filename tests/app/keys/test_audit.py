from functools import partial

import pytest

from app.core.metrics import REGISTRY
from app.server.middleware import REFUSED_A_MINUTE
from tests.support.databases import on_sqlite


def test_every_admin_call_is_there_refused_ones_too(client, put_link):
    put_link("A")
    made = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read"]}).json()
    refused = client.put("/v1/links/B", json={}, headers={"X-API-Key": made["key"]})
    assert refused.status_code == 403
    client.get("/v1/links")  # needs no admin
    calls = client.get("/v1/admin/audit").json()["calls"]
    assert [(call["method"], call["path"], call["status"]) for call in calls] == [
        ("PUT", "/v1/links/B", 403),
        ("POST", "/v1/admin/keys", 201),
        ("PUT", "/v1/links/A", 201),
    ]
    assert calls[0]["key_name"] == "reader"
    assert calls[1]["key_id"] == "environment"
    assert calls[0]["request_id"] == refused.headers["x-request-id"]


def test_pages_hold_together(client, put_link):
    for name in "ABCDE":
        put_link(name)
    first = client.get("/v1/admin/audit", params={"limit": 3}).json()
    rest = client.get("/v1/admin/audit", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    paths = [call["path"] for call in first["calls"] + rest["calls"]]
    assert paths == [f"/v1/links/{name}" for name in "EDCBA"]


def test_a_call_whose_body_cannot_be_read_is_there(client):
    refused = client.post("/v1/admin/retrain", content=b"{half", headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    calls = client.get("/v1/admin/audit").json()["calls"]
    assert [(call["path"], call["status"]) for call in calls] == [("/v1/admin/retrain", 422)]


def test_a_method_of_any_length_is_recorded(client):
    assert client.request("UNSUBSCRIBE", "/v1/admin/keys", content=b"{}").status_code == 405
    [newest, *_] = client.get("/v1/admin/audit").json()["calls"]
    assert (newest["method"], newest["status"]) == ("UNSUBSCR", 405)


@pytest.mark.journey
@on_sqlite
def test_a_key_that_may_nothing_cannot_fill_it(client):
    key = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read"]}).json()
    left_out = partial(REGISTRY.get_sample_value, "flowcast_audit_unrecorded_total")
    before, n = left_out(), 100
    for i in range(n):
        method, path = ("GET", "/v1/admin/keys") if i % 2 else ("PUT", "/v1/links/A")
        refused = client.request(method, path, json={}, headers={"X-API-Key": key["key"]})
        assert refused.status_code == 403
    recorded = client.get("/v1/admin/audit", params={"key_id": key["key_id"], "limit": 1000}).json()["calls"]
    assert REFUSED_A_MINUTE <= len(recorded) < n
    assert left_out() - before == n - len(recorded)
    for i in range(2 * REFUSED_A_MINUTE):  # what an admin does is recorded, however much
        client.put(f"/v1/links/{i}", json={"zone": "UTC"})
    stored = client.get("/v1/admin/audit", params={"key_id": "environment", "limit": 1000}).json()["calls"]
    assert [call["path"] for call in stored if call["method"] == "PUT"] == [
        f"/v1/links/{i}" for i in reversed(range(2 * REFUSED_A_MINUTE))
    ]
