"""``GET /v1/key``: what one's own key may do."""

from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Switch


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
