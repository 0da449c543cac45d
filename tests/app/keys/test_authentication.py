"""Keys and scopes are checked before a request's body is read; keys may be bearer tokens."""

import asyncio
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.core.metrics import REGISTRY
from app.keys.authentication import ReadKey
from app.keys.tables import Scope
from app.links import schemas
from app.main import create_app
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY

pytestmark = on_sqlite
FILLED = {"{link_id}": "A", "{version}": "1"}


def calls_with_a_body(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return method and path of every call that takes a body."""
    paths = document["paths"].items()
    return [(how.upper(), path) for path, calls in paths for how, call in calls.items() if "requestBody" in call]


class SilentRequest:
    """A request whose body never comes, and the status of its answer."""

    def __init__(self, app: FastAPI, method: str, path: str, key: str) -> None:
        for name, value in FILLED.items():
            path = path.replace(name, value)
        headers = [(b"x-api-key", key.encode()), (b"content-length", b"100"), (b"content-type", b"application/json")]
        self._scope: dict[str, Any] = {
            "type": "http", "method": method, "path": path, "query_string": b"", "headers": headers,
            "scheme": "http", "client": ("192.0.2.1", 1), "server": ("testserver", 80), "root_path": "",
        }  # fmt: skip
        self._app, self.status, self.asked_for_body = app, 0, False

    async def __call__(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        self.asked_for_body = True
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)


@pytest.mark.journey
def test_a_key_without_the_scope_is_refused_before_any_of_the_body_is_read(
    service: FastAPI, client: TestClient, openapi_document: dict[str, Any]
):
    keys = [client.post("/v1/admin/keys", json={"name": scope, "scopes": [scope]}).json()["key"] for scope in Scope]
    calls = calls_with_a_body(openapi_document)
    assert ("POST", "/v1/links") in calls
    assert ("POST", "/v1/import") in calls
    for method, path in calls:
        requests = [SilentRequest(service, method, path, key) for key in keys]
        for request in requests:
            client.portal.call(request)
        refused = [one.status for one in requests if not one.asked_for_body]
        assert refused == [403, 403], path  # by the third key, which has the scope, the body is asked for


def test_a_call_refused_so_is_in_the_audit(client: TestClient):
    key = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read"]}).json()["key"]
    assert client.put("/v1/links/A", json={}, headers={"X-API-Key": key}).status_code == 403
    call = client.get("/v1/admin/audit").json()["calls"][0]
    assert (call["key_name"], call["method"], call["path"], call["status"]) == ("reader", "PUT", "/v1/links/A", 403)


@pytest.mark.parametrize("path", ["/v1/nowhere", "/v1/admin/nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_call_that_does_not_exist_needs_a_key_too(service: FastAPI, client: TestClient, method: str, path: str):
    body = {} if method == "POST" else None
    assert client.request(method, path, json=body, headers={"X-API-Key": "unknown"}).status_code == 401
    assert client.request(method, path, json=body).status_code == 404


def test_a_refused_call_is_logged_and_counted_by_its_route(client: TestClient):
    counted = partial(REGISTRY.get_sample_value, "flowcast_requests_total")
    labels = {"method": "PUT", "route": "/v1/links/{link_id}", "status": "4xx"}
    before = counted(labels) or 0
    assert client.put("/v1/links/A", json={}, headers={"X-API-Key": "unknown"}).status_code == 401
    assert counted(labels) == before + 1


@pytest.mark.usefixtures("database_url")
def test_a_route_refuses_a_caller_that_the_middleware_has_not_checked():
    app = FastAPI()

    @app.get("/v1/probe")
    async def probe(caller: ReadKey) -> None: ...

    with TestClient(app) as client, pytest.raises(RuntimeError, match="was not checked by authenticate"):
        client.get("/v1/probe")


def test_links_are_checked_off_the_event_loop(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    """The event loop answers others while a large body of links is checked."""
    on_the_loop = []

    def zone_named(name: str) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            on_the_loop.append(False)
        else:
            on_the_loop.append(True)

    monkeypatch.setattr(schemas, "zone_named", zone_named)
    client.post("/v1/links", json={"links": [{"link_id": "A", "zone": "UTC"}]}).raise_for_status()
    assert on_the_loop == [False]


def test_a_body_of_links_is_bounded_before_it_is_parsed(client: TestClient):
    large = b'{"links": [' + b" " * (8 << 20) + b"]}"
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/links", content=large, headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "the body is larger than 8 MB, the most that this call accepts",
    )
    answer = client.post("/v1/links", content=b'{"links": [' + b"[]," * 500_000 + b"[]]}", headers=headers)
    assert answer.status_code == 413
    assert "500003 lists and objects" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "media_type", "field"),
    [
        (b'{"links": []}', "text/plain", "Content-Type"),
        (b'{"links": []', "application/json", "body"),
        (b"", "application/json", "body"),
        (b'{"links": [{"link_id": "A", "zone": "Mars"}]}', "application/json", "links.0.zone"),
    ],
)
def test_what_is_wrong_with_a_body_of_links_is_named(client: TestClient, body: bytes, media_type: str, field: str):
    answer = client.post("/v1/links", content=body, headers={"Content-Type": media_type})
    assert answer.status_code == (415 if field == "Content-Type" else 422)
    assert answer.json()["errors"][0]["field"] == field


def test_a_byte_order_mark_before_links_is_ignored(client: TestClient):
    body = b'\xef\xbb\xbf{"links": [{"link_id": "A", "zone": "UTC"}]}'
    headers = {"Content-Type": "application/geo+json"}
    assert client.post("/v1/links", content=body, headers=headers).json()["created"] == 1


@pytest.fixture
def keyless_client(service):
    """Return a client that sends no key."""
    with TestClient(service) as client:
        yield client


def bearer(key, scheme="Bearer"):
    return {"Authorization": f"{scheme} {key}"}


@pytest.fixture
def keys(keyless_client):
    """Return a key of each scope."""
    made = {}
    for scope in ("read", "ingest"):
        body = {"name": scope, "scopes": [scope]}
        answer = keyless_client.post("/v1/admin/keys", json=body, headers=bearer(ADMIN_KEY))  # it also admits bodies
        assert answer.status_code == 201, answer.text
        made[scope] = answer.json()
    return made


def test_it_opens_what_the_key_opens(keyless_client, keys):
    for key, status in ((keys["read"]["key"], 200), (keys["ingest"]["key"], 403), ("nobody", 401), ("", 401)):
        assert keyless_client.get("/v1/links", headers=bearer(key)).status_code == status
    assert keyless_client.get("/v1/key", headers=bearer(keys["read"]["key"])).json()["key_id"] == keys["read"]["key_id"]
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert keyless_client.get("/v1/links", headers=bearer(keys["read"]["key"], scheme)).status_code == 200
    for scheme in ("Basic", "Token", "Bearers"):
        refused = keyless_client.get("/v1/links", headers=bearer(keys["read"]["key"], scheme))
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'ApiKey header="X-API-Key", Bearer'
        assert "Authorization: Bearer" in refused.json()["detail"]


def test_where_both_are_sent_the_header_of_its_own_counts(keyless_client, keys):
    read, other = keys["read"]["key"], keys["ingest"]["key"]
    assert keyless_client.get("/v1/links", headers={"X-API-Key": read, **bearer(other)}).status_code == 200
    assert keyless_client.get("/v1/links", headers={"X-API-Key": other, **bearer(read)}).status_code == 403
    assert keyless_client.get("/v1/links", headers={"X-API-Key": "wrong", **bearer(read)}).status_code == 401
    assert keyless_client.get("/v1/links", headers={"X-API-Key": "", **bearer(read)}).status_code == 200


def test_the_audit_names_the_key(keyless_client, keys):
    calls = keyless_client.get("/v1/admin/audit", headers=bearer(ADMIN_KEY)).json()["calls"]
    assert [(call["key_id"], call["path"]) for call in calls] == [("environment", "/v1/admin/keys")] * 2


def test_a_forecast_that_lies_ready_is_sent_to_it(city, keyless_client, keys):
    path = f"/v1/links/{next(iter(city.counts))}/forecast"
    for _ in range(2):  # the second from memory
        assert keyless_client.get(path, headers=bearer(keys["read"]["key"])).status_code == 200
        assert keyless_client.get(path, headers=bearer(keys["ingest"]["key"])).status_code == 403
        assert keyless_client.get(path, headers=bearer("nobody")).status_code == 401


def test_wrong_ones_are_limited_as_ever(settings):
    with TestClient(create_app(settings.model_copy(update={"rate_limit": 3}))) as keyless_client:
        statuses = [keyless_client.get("/v1/links", headers=bearer(f"fc_wrong_{i}")).status_code for i in range(5)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert keyless_client.get("/v1/links", headers=bearer(ADMIN_KEY)).status_code == 200


def test_events_are_streamed_to_it(settings):
    with TestClient(create_app(settings.model_copy(update={"stream_seconds": 0.05}))) as keyless_client:
        assert "event: ready" in keyless_client.get("/v1/events", headers=bearer(ADMIN_KEY)).text
        assert keyless_client.get("/v1/events", headers=bearer("nobody")).status_code == 401


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
