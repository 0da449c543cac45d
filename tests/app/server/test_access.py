"""Access to every route with every scope, and with every kind of invalid key."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI
from sqlalchemy.orm import Session
from starlette.routing import Route
from starlette.testclient import TestClient

from app.core.database import open_database
from app.keys.issue import issue_key, revoke_key
from app.main import create_app
from app.settings import Settings
from tests.support.services import ADMIN_KEY

READ, INGEST, ADMIN = {"read"}, {"ingest"}, {"admin"}
ANY_KEY = READ | INGEST | ADMIN
NOBODY: set[str] = set()  # needs no key

# Written by hand, from what each call is for: a route that is not here fails the test, and so does a row without one.
MAY = {
    "GET /v1/links": READ,
    "POST /v1/links": ADMIN,
    "GET /v1/links/{link_id}": READ,
    "PUT /v1/links/{link_id}": ADMIN,
    "PATCH /v1/links/{link_id}": ADMIN,
    "DELETE /v1/links/{link_id}": ADMIN,
    "POST /v1/counts": INGEST,
    "GET /v1/links/{link_id}/counts": READ,
    "DELETE /v1/links/{link_id}/counts": ADMIN,
    "POST /v1/import": INGEST,
    "GET /v1/links/{link_id}/forecast": READ,
    "GET /v1/forecasts": READ,
    "GET /v1/links/{link_id}/forecasts": READ,
    "GET /v1/links/{link_id}/experts": READ,
    "GET /v1/links/{link_id}/accuracy": READ,
    "GET /v1/accuracy": READ,
    "GET /v1/links/{link_id}/health": READ,
    "GET /v1/health": READ,
    "GET /v1/links/{link_id}/models": READ,
    "GET /v1/links/{link_id}/models/{version}": READ,
    "POST /v1/admin/retrain": ADMIN,
    "GET /v1/admin/retrain": ADMIN,
    "GET /v1/admin/retrain/{run_id}": ADMIN,
    "DELETE /v1/admin/retrain/{run_id}": ADMIN,
    "POST /v1/admin/links/{link_id}/models/{version}/activate": ADMIN,
    "POST /v1/admin/links/{link_id}/models/deactivate": ADMIN,
    "GET /v1/admin/links/{link_id}/activations": ADMIN,
    "GET /v1/events": READ,
    "POST /v1/admin/webhooks": ADMIN,
    "GET /v1/admin/webhooks": ADMIN,
    "DELETE /v1/admin/webhooks/{webhook_id}": ADMIN,
    "GET /v1/admin/audit": ADMIN,
    "GET /v1/key": ANY_KEY,
    "POST /v1/admin/keys": ADMIN,
    "GET /v1/admin/keys": ADMIN,
    "DELETE /v1/admin/keys/{key_id}": ADMIN,
    "GET /livez": NOBODY,
    "GET /readyz": NOBODY,
    "GET /readyz/forecasts": NOBODY,
    "GET /metrics": NOBODY,
    "GET /openapi.json": NOBODY,
    "GET /docs": NOBODY,
    "GET /docs/{file}": NOBODY,
    "GET /": NOBODY,
    "GET /dashboard/{digest}/{name:path}": NOBODY,
}
PLACES = {
    "link_id": "absent", "version": "1", "run_id": "1", "webhook_id": "1", "key_id": "absent",
    "file": "docs.js", "digest": "0", "name:path": "main.js",
}  # fmt: skip
METHODS = {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "QUERY", "TRACE"}
STRANGERS = ("no key", "empty", "unknown", "wrong secret", "malformed", "not text", "very long", "expired", "revoked")


def routes_of(app: FastAPI) -> set[str]:
    assert all(isinstance(route, Route) for route in app.routes), "a route that is none of HTTP's"
    methods = [(method, route.path) for route in app.routes for method in route.methods or ()]
    return {f"{method} {path}" for method, path in methods if method != "HEAD"}  # HEAD is GET, without the body


@pytest.fixture(scope="module")
def database(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return SQLite alone, because only keys are read."""
    path = tmp_path_factory.mktemp("access") / "flowcast.db"
    shutil.copy(sqlite_template, path)
    return path


@pytest.fixture(scope="module")
def keys(database: Path) -> dict[str, str]:
    """Return keys by scope, and invalid keys."""
    engine = open_database(f"sqlite:///{database}")
    now = datetime.now(UTC)
    with Session(engine.execution_options(writes=True)) as session, session.begin():
        made = {scope: issue_key(session, name=scope, scopes={scope}) for scope in sorted(ANY_KEY)}
        made["every scope"] = issue_key(session, name="every", scopes=ANY_KEY)
        made["read+ingest"] = issue_key(session, name="both", scopes=READ | INGEST)
        made["expired"] = issue_key(session, name="old", scopes=ANY_KEY)
        made["expired"].row.expires_at = now - timedelta(seconds=1)
        made["revoked"] = issue_key(session, name="gone", scopes=ANY_KEY)
        revoke_key(session, made["revoked"].row.key_id, environment_key=True)
        found = {name: issued.key for name, issued in made.items()}
    engine.dispose()
    key_id = found["every scope"].split("_")[1]
    return found | {
        "empty": "",
        "unknown": f"fc_0123456789ab_{'A' * 43}",
        "wrong secret": f"fc_{key_id}_{'A' * 43}",
        "malformed": "Bearer ' OR 1=1 --",
        "not text": "fc_\xff\xfe_\xe9",
        "very long": "fc_" + "a" * 30_000 + "_b",
    }


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[TestClient]:
    settings = Settings(
        database_url=f"sqlite:///{database}",
        model_store=database.parent / "models",
        admin_key=ADMIN_KEY,
        rate_limit=0,
        stream_seconds=0.05,
        log_level="error",
    )
    with TestClient(create_app(settings)) as client:
        yield client


def ask(client: TestClient, call: str, key: str | None):
    method, path = call.split(" ")
    for name, value in PLACES.items():
        path = path.replace("{" + name + "}", value)
    headers = {} if key is None else {b"X-API-Key": key.encode("latin-1")}
    return client.request(method, path, headers=headers, json={} if method in ("POST", "PUT") else None)


def test_the_table_has_every_route_and_no_other(client):
    assert routes_of(client.app) == MAY.keys()


@pytest.mark.journey
def test_a_method_that_a_path_lacks_is_answered_with_all_it_has(client, keys):
    wrong = []
    for path in {call.split(" ")[1] for call in MAY}:
        has = {method for method in METHODS if f"{method} {path}" in MAY}
        lacks = METHODS - has - ({"HEAD"} if "GET" in has else set())
        for method in sorted(lacks):
            answer = ask(client, f"{method} {path}", keys["every scope"])
            allowed = answer.headers.get("Allow", "")
            is_problem = answer.headers.get("Content-Type") == "application/problem+json"
            if answer.status_code != 405 or not is_problem or set(allowed.split(", ")) - {"HEAD"} != has:
                wrong.append(f"{method} {path}: {answer.status_code}, {allowed}")
    assert wrong == []


@pytest.mark.journey
def test_every_route_lets_in_the_scopes_of_the_table_and_no_others(client, keys):
    holders = {**{scope: {scope} for scope in ANY_KEY}, "every scope": ANY_KEY, "read+ingest": READ | INGEST}
    wrong = []
    for call, scopes in MAY.items():
        for holder, held in holders.items():
            status = ask(client, call, keys[holder]).status_code
            let_in = status not in (401, 403)
            if let_in != (scopes is NOBODY or bool(scopes & held)) or status == 401 or status >= 500:
                wrong.append(f"{call} with {holder}: {status}")
    assert wrong == []


@pytest.mark.journey
def test_no_route_that_needs_a_key_lets_in_a_stranger(client, keys):
    result, wrong = set(), []
    for call, scopes in MAY.items():
        for stranger in STRANGERS:
            answer = ask(client, call, keys.get(stranger))
            if scopes is NOBODY:
                let_in = answer.status_code not in (401, 403) and answer.status_code < 500
                wrong += [] if let_in else [f"{call} with {stranger}: {answer.status_code}"]
                continue
            sound = answer.status_code == 401 and answer.headers["Content-Type"] == "application/problem+json"
            if not sound or "X-API-Key" not in answer.headers["WWW-Authenticate"]:
                wrong.append(f"{call} with {stranger}: {answer.status_code}")
            result.add((stranger in ("no key", "empty"), answer.json()["detail"]))
    assert wrong == []
    # The response does not reveal why a key is invalid: one sentence for a missing key, one for all others.
    assert sorted(result) == [
        (False, "the key is unknown, expired or revoked"),
        (True, "a key is missing; send it in the header X-API-Key, or as Authorization: Bearer"),
    ]


def test_head_needs_what_get_needs(client, keys):
    for call, scopes in MAY.items():
        if call.startswith("GET ") and scopes is not NOBODY:
            head = call.replace("GET", "HEAD")
            assert ask(client, head, None).status_code == 401, head
            assert (ask(client, head, keys["read"]).status_code == 403) == (scopes is ADMIN), head


def test_an_import_that_creates_links_needs_both_scopes(client, keys):
    path = "/v1/import?create_links=true&dry_run=true&zone=UTC"
    body = b"link_id,slot_start,count\nA,2025-09-01T00:00:00Z,1\n"
    for holder, status in {"ingest": 403, "admin": 403, "read+ingest": 403, "every scope": 200}.items():
        assert client.post(path, content=body, headers={"X-API-Key": keys[holder]}).status_code == status, holder


def test_of_two_keys_the_first_counts_with_and_without_a_body(client, keys):
    for first, second, statuses in (("read", "admin", (403, 200)), ("admin", "read", (422, 403))):
        headers = [("X-API-Key", keys[first]), ("X-API-Key", keys[second])]
        post = client.post("/v1/links", headers=headers, json={})
        get = client.get("/v1/links", headers=headers)
        assert (post.status_code, get.status_code) == statuses
