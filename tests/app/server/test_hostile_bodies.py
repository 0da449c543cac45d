"""Hostile bodies: answered with 4xx in the one shape of errors, within bounds, and the service goes on."""

import gzip
import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from tests.support.memory import limit_memory
from tests.support.services import ADMIN_KEY

pytestmark = pytest.mark.journey

MEGABYTE = 1 << 20
JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
ROW = b'{"link_id": "A", "slot_start": "2025-09-01T00:00:00Z", "count": %s}'
# (method, path, what a body is wrapped in so that it reaches the schema)
CALLS = [
    ("POST", "/v1/counts", b"%s"),
    ("POST", "/v1/counts", b'{"counts": %s}'),
    ("POST", "/v1/counts", b'{"counts": [%s]}'),
    ("POST", "/v1/links", b"%s"),
    ("POST", "/v1/links", b'{"links": %s}'),
    ("POST", "/v1/links", b'{"type": "FeatureCollection", "features": %s}'),
    ("PUT", "/v1/links/A", b"%s"),
    ("PUT", "/v1/links/A", b'{"name": %s}'),
    ("PUT", "/v1/links/A", b'{"capacity": %s}'),
    ("PUT", "/v1/links/A", b'{"geometry": {"type": "MultiPolygon", "coordinates": %s}}'),
    ("POST", "/v1/admin/keys", b'{"name": %s, "scopes": ["read"]}'),
    ("POST", "/v1/admin/keys", b'{"name": "a", "scopes": %s}'),
    ("POST", "/v1/admin/retrain", b'{"links": %s}'),
    ("POST", "/v1/admin/retrain", b'{"links": ["A"], "parameters": %s}'),
    ("POST", "/v1/admin/webhooks", b'{"url": %s, "events": ["forecasts"]}'),
    ("POST", "/v1/admin/links/A/models/1/activate", b'{"reason": %s}'),
]
HOSTILE = {
    "nested lists": b"[" * 100_000,
    "nested lists, closed": b"[" * 5_000 + b"]" * 5_000,
    "nested just deep enough": b"[" * 150 + b"]" * 150,
    "nested objects": b'{"a":' * 100_000,
    "not a number": b"NaN",
    "infinite": b"-Infinity",
    "huge number": b"9" * 5_000,
    "huge float": b"1e999",
    "tiny float": b"1e-999",
    "half a surrogate": b'"\\ud800"',
    "surrogates the wrong way round": b'"\\udc00\\ud800"',
    "the character NUL": b'"a\\u0000b"',
    "bytes that are no text": b'"\xff\xfe"',
    "another encoding": '"ä"'.encode("utf-16"),
    "cut short": b'{"a": [1, 2',
    "nothing but commas": b",,",
    "words": b"true false",
    "wrong type": b"false",
}


@pytest.fixture(scope="module")
def client(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return an app on SQLite, because no request gets as far as the database."""
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copy(sqlite_template, folder / "flowcast.db")
    settings = Settings(
        database_url=f"sqlite:///{folder}/flowcast.db",
        model_store=folder / "models",
        admin_key=ADMIN_KEY,
        clock="feed",
        max_batch=1000,
        max_unpacked_megabytes=1,
        log_level="error",
    )
    with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as client:
        assert client.put("/v1/links/A", json={"zone": "UTC"}).status_code == 201
        yield client


def send(client: TestClient, path: str, body: bytes, kind: str = JSON, method: str = "POST"):
    answer = client.request(method, path, content=body, headers={"Content-Type": kind})
    if answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert len(answer.content) < 30_000
    return answer


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_json_is_refused_by_every_call_that_takes_a_body(client, kind):
    wrong = []
    for method, path, around in CALLS:
        answer = send(client, path, around.replace(b"%s", HOSTILE[kind]), method=method)
        if not 400 <= answer.status_code < 500:
            wrong.append(f"{method} {path} {around!r}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []
    assert client.get("/v1/links/A").json()["name"] == "A"


@pytest.mark.parametrize("value", [b"NaN", b"1e999", b"9" * 5_000, b"[" * 10_000, b'"\\ud800"', b"4.5", b"true", b"-1"])
@pytest.mark.parametrize(("kind", "around"), [(JSON, b'{"counts": [%s]}'), (LINES, b"%s\n")])
def test_a_count_that_is_none_is_refused(client, value, kind, around):
    answer = send(client, "/v1/counts", around % (ROW % value), kind)
    assert answer.status_code == 422


@pytest.mark.parametrize("kind", [JSON, LINES, CSV])
@pytest.mark.parametrize("body", [b"\xff\xfe\x00", b"\x00" * 100, "A,ä".encode("latin-1"), b"\r" * 1000, b'"' * 999])
def test_counts_in_no_language_are_refused(client, kind, body):
    assert send(client, "/v1/counts", body, kind).status_code in (200, 422)  # lines without anything are no counts


@pytest.mark.parametrize(
    ("path", "kind", "body", "status"),
    [
        ("/v1/counts", JSON, b'{"counts":[' + b"0," * 200_000 + b"0]}", 413),
        ("/v1/counts", JSON, b"{" + b",".join(b'"%d":0' % i for i in range(100_000)) + b"}", 413),
        ("/v1/counts", JSON, b'{"counts":[{' + b",".join(b'"%d":0' % i for i in range(4_000)) + b"}]}", 422),
        ("/v1/counts", LINES, b"0\n" * 500_000, 413),
        ("/v1/counts", CSV, b"link_id,slot_start,count" + b"," * 4_000 + b"\n" + b"A\n" * 1000, 422),
        ("/v1/counts", CSV, b"link_id,slot_start,count\n" + b"A\n" * 200_000, 413),
        ("/v1/links", JSON, b'{"links":[' + b"0," * 200_000 + b"0]}", 422),
        ("/v1/links", JSON, b'{"links":[' + b"[]," * 600_000 + b"0]}", 413),
        ("/v1/links", JSON, b'{"links":[{' + b",".join(b'"%d":0' % i for i in range(50_000)) + b"}]}", 422),
        (
            "/v1/links",
            JSON,
            b'{"links":[{"link_id":"A","geometry":{"type":"LineString","coordinates":[' + b"0," * 200_000 + b"0]}}]}",
            422,
        ),
        ("/v1/admin/keys", JSON, b'{"scopes":[' + b"0," * 600_000 + b"0]}", 413),
    ],
)
def test_many_mistakes_take_little_memory(client, path, kind, body, status):
    with limit_memory(40 * len(body) + 16 * MEGABYTE):
        assert send(client, path, body, kind).status_code == status


def packed_file(name: str, size: int) -> bytes:
    data = b"link_id,slot_start,count\n" + bytes(size)
    if name == "gzip":
        return gzip.compress(data)
    archived = io.BytesIO()
    with zipfile.ZipFile(archived, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("counts.csv", data)
    return archived.getvalue()


@pytest.mark.parametrize("packing", ["gzip", "zip"])
def test_a_file_that_unpacks_to_too_much_is_refused(client, packing):
    answer = send(client, "/v1/import?dry_run=true", packed_file(packing, 30 * MEGABYTE), "application/octet-stream")
    assert answer.status_code == 422
    assert "unpacks to more than the 1 MB, which FLOWCAST_MAX_UNPACKED_MEGABYTES allows" in answer.json()["detail"]
    assert send(client, "/v1/import?dry_run=true", packed_file(packing, 1000)).status_code == 200


@pytest.mark.parametrize(
    "body", [b"link_id,slot_start,count\nA,\xc2", b"\xc2", b"{\xc2", b"PK\x03\x04", b"\x1f\x8b\x08"]
)
@pytest.mark.parametrize("layout", ["auto", "flowcast-csv", "flowcast-jsonl", "webtris-daily-json", "pems-5min"])
def test_a_broken_file_is_refused_or_read(client, body, layout):
    assert send(client, f"/v1/import?dry_run=true&format={layout}", body).status_code in (200, 422)


def test_link_ids_like_formulas_can_be_sent_marked_as_text(client):
    client.put("/v1/links/-7", json={"zone": "UTC"}).raise_for_status()
    for path, i in (("/v1/counts", 0), ("/v1/import", 1)):
        for mark in ("'", ""):
            body = f"link_id,slot_start,count\n{mark}-7,2025-09-01T00:{15 * i:02}:00Z,5\n".encode()
            answer = send(client, path, body, CSV)
            assert answer.status_code == 200, answer.text
    counts = client.get("/v1/links/-7/counts?from=2025-09-01T00:00:00Z&to=2025-09-01T00:30:00Z").json()["counts"]
    assert [one["count"] for one in counts] == [5, 5]
