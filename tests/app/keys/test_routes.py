"""Keys over REST."""

from starlette.testclient import TestClient

from app.keys.cache import hashed
from app.main import create_app
from app.settings import Switch


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

    def test_a_replaced_key_lives_on_for_the_overlap(self, client):
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
            assert answer.json()["errors"][0]["field"].startswith(f"body.{next(iter(wrong))}")


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
