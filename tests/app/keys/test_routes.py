"""Keys over REST, the key of a call, and the audit of admin calls."""

from functools import partial

import pytest
from starlette.testclient import TestClient

from app.core.metrics import REGISTRY
from app.keys.cache import hashed
from app.main import create_app
from app.server.middleware import REFUSED_A_MINUTE
from app.settings import Switch
from tests.support.databases import on_sqlite


def make(client, **fields):
    answer = client.post("/v1/admin/keys", json={"name": "centre", "scopes": ["read"]} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def status_with(client, key, path="/v1/links"):
    return client.get(path, headers={"X-API-Key": key}).status_code


def listed(client):
    return {key["key_id"]: key for key in client.get("/v1/admin/keys").json()["keys"]}


class TestPostKey:
    def test_a_new_key_works_at_once(self, client):
        made = make(client, scopes=["read", "ingest"], expires_in_days=30)
        assert made["key"].startswith(f"fc_{made['key_id']}_")
        assert made["scopes"] == ["read", "ingest"]
        assert made["expires_at"] > made["created_at"]
        assert status_with(client, made["key"]) == 200

    def test_a_scope_it_has_not_is_refused_by_name(self, client):
        made = make(client)
        answer = client.get("/v1/admin/keys", headers={"X-API-Key": made["key"]})
        assert answer.status_code == 403
        assert "'admin'" in answer.json()["detail"]
        assert "has read" in answer.json()["detail"]

    def test_a_replaced_key_stays_valid_for_the_overlap(self, client):
        old = make(client)
        new = make(client, replaces=old["key_id"], overlap_hours=1)
        assert status_with(client, old["key"]) == status_with(client, new["key"]) == 200
        shown = listed(client)[old["key_id"]]
        assert shown["replaced_by"] == new["key_id"]
        assert shown["expires_at"] is not None

    def test_without_overlap_it_ends_at_once(self, client):
        old = make(client)
        assert status_with(client, old["key"]) == 200
        make(client, replaces=old["key_id"], overlap_hours=0)
        assert status_with(client, old["key"]) == 401
        assert listed(client)[old["key_id"]]["state"] == "expired"

    def test_only_a_key_that_is_still_used_can_be_replaced(self, client):
        assert (
            client.post("/v1/admin/keys", json={"name": "x", "scopes": ["read"], "replaces": "none"}).status_code == 404
        )
        old = make(client)
        make(client, replaces=old["key_id"])
        again = client.post("/v1/admin/keys", json={"name": "x", "scopes": ["read"], "replaces": old["key_id"]})
        assert again.status_code == 409

    def test_what_breaks_a_rule_is_refused(self, client):
        for wrong in (
            {"name": ""},
            {"name": "a\0b"},
            {"scopes": []},
            {"scopes": ["write"]},
            {"scopes": ["read", "read"]},
            {"expires_in_days": 0},
            {"expires_in_days": "3"},
            {"overlap_hours": -1},
            {"unknown": 1},
        ):
            answer = client.post("/v1/admin/keys", json={"name": "x", "scopes": ["read"]} | wrong)
            assert answer.status_code == 422, wrong
            assert answer.json()["errors"][0]["field"].startswith(next(iter(wrong)))


class TestGetKeys:
    def test_shows_every_key_but_never_the_key_itself(self, client):
        made = make(client)
        answer = client.get("/v1/admin/keys")
        assert set(listed(client)) == {made["key_id"]}
        assert made["key"] not in answer.text
        assert hashed(made["key"]) not in answer.text
        assert "hash" not in answer.text


class TestDeleteKey:
    def test_a_revoked_key_is_refused_at_once(self, client):
        made = make(client)
        assert status_with(client, made["key"]) == 200
        for _ in range(2):
            assert client.delete(f"/v1/admin/keys/{made['key_id']}").status_code == 204
        assert status_with(client, made["key"]) == 401
        assert listed(client)[made["key_id"]]["state"] == "revoked"

    def test_an_unknown_key_is_404(self, client):
        assert client.delete("/v1/admin/keys/0123456789ab").status_code == 404

    def test_the_last_admin_key_stays(self, client, settings):
        first, second = (make(client, scopes=["admin"]) for _ in range(2))
        without = settings.model_copy(update={"admin_key": None})
        with TestClient(create_app(without), headers={"X-API-Key": first["key"]}) as alone:
            assert alone.delete(f"/v1/admin/keys/{second['key_id']}").status_code == 204
            assert alone.delete(f"/v1/admin/keys/{first['key_id']}").status_code == 409
            poorer = {"name": "x", "scopes": ["read"], "replaces": first["key_id"]}
            assert alone.post("/v1/admin/keys", json=poorer).status_code == 409
            assert alone.get("/v1/admin/keys").status_code == 200
        assert client.delete(f"/v1/admin/keys/{first['key_id']}").status_code == 204


def test_without_auth_everyone_is_let_in(settings):
    with TestClient(create_app(settings.model_copy(update={"auth": Switch.OFF, "admin_key": None}))) as client:
        assert client.get("/v1/admin/keys").status_code == 200


def own(client, key):
    return client.get("/v1/key", headers={"X-API-Key": key})


def test_any_key_may_ask_what_it_may_do(client):
    for scopes in (["read"], ["ingest"], ["admin"], ["read", "ingest"]):
        made = client.post("/v1/admin/keys", json={"name": "wall", "scopes": scopes, "expires_in_days": 30}).json()
        answer = own(client, made["key"])
        assert answer.status_code == 200
        assert answer.json() == {
            "key_id": made["key_id"], "name": "wall", "scopes": scopes, "expires_at": made["expires_at"],
        }  # fmt: skip
        assert made["key"] not in answer.text


def test_the_key_of_the_settings_has_every_scope_and_no_end(client):
    assert client.get("/v1/key").json() == {
        "key_id": "environment",
        "name": "FLOWCAST_ADMIN_KEY",
        "scopes": ["read", "ingest", "admin"],
        "expires_at": None,
    }


def test_no_key_and_a_wrong_one_are_refused(client):
    assert own(client, "").status_code == 401
    assert own(client, "fc_000000000000_nobody").status_code == 401


def test_a_revoked_key_is_refused(client):
    made = client.post("/v1/admin/keys", json={"name": "wall", "scopes": ["read"]}).json()
    assert own(client, made["key"]).status_code == 200
    client.delete(f"/v1/admin/keys/{made['key_id']}")
    assert own(client, made["key"]).status_code == 401


def test_asking_is_no_admin_call(client):
    client.get("/v1/key")
    assert not [call for call in client.get("/v1/admin/audit").json()["calls"] if call["path"] == "/v1/key"]


def test_without_keys_everyone_may_do_everything(settings):
    with TestClient(create_app(settings.model_copy(update={"auth": Switch.OFF}))) as client:
        assert client.get("/v1/key").json() == {
            "key_id": "anonymous",
            "name": "no key needed",
            "scopes": ["read", "ingest", "admin"],
            "expires_at": None,
        }


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
