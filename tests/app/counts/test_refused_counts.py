"""Batches of counts that are refused whole: by the field, the value and the rule."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

SLOTS = [f"2025-09-01T00:{minute}:00Z" for minute in ("00", "15", "30")]


def row(slot_start: str = SLOTS[0], count: object = 5, link_id: str = "A", **more: object) -> dict[str, object]:
    return {"link_id": link_id, "slot_start": slot_start, "count": count, **more}


@pytest.fixture(scope="module")
def client(shared_client: TestClient) -> Iterator[TestClient]:
    assert shared_client.put("/v1/links/A", json={"zone": "UTC"}).status_code == 201
    return shared_client


@pytest.mark.parametrize(
    ("bad", "field", "rule"),
    [
        (row(link_id="nowhere"), "link_id", "exists"),
        (row() | {"slot_start": "2025-09-01T00:07:00Z"}, "slot_start", "grid"),
        (row() | {"slot_start": "2025-09-01T00:00:00.5Z"}, "slot_start", "grid"),
        (row() | {"slot_start": "2025-09-01T00:00:00"}, "slot_start", "offset"),
        (row() | {"slot_start": "yesterday"}, "slot_start", "RFC 3339"),
        (row() | {"slot_start": "2025-02-30T00:00:00Z"}, "slot_start", "RFC 3339"),
        (row() | {"slot_start": "0001-01-01T00:00:00+10:00"}, "slot_start", "year"),
        (row(count=-1), "count", "whole number"),
        (row(count=1.5), "count", "whole number"),
        (row(count=True), "count", "whole number"),
        (row(count="5"), "count", "whole number"),
        (row(count=None), "count", "whole number"),
        (row(count=2**40), "count", "whole number"),
        (row(quality="guessed"), "quality", "observed"),
        (row(speed=50), "speed", "not known"),
        ({"link_id": "A", "slot_start": SLOTS[0]}, "count", "whole number"),
        (row(link_id="a b"), "link_id", "letters"),
        ("A", "row", "object"),
    ],
)
def test_a_bad_count_is_refused_by_name_and_nothing_is_stored(client, bad, field, rule):
    batch = {"counts": [row(SLOTS[1]), bad, row(SLOTS[2])]}
    answer = client.post("/v1/counts", json=batch)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    error = answer.json()["errors"][0]
    assert error["field"] == f"counts.1.{field}".removesuffix(".row")
    assert rule in error["reason"]
    assert client.get("/v1/links/A/counts").json()["counts"] == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"counts": {}}', b'{"counts": [], "more": 1}', b"\xff", b"NaN"])
def test_a_body_that_is_no_batch_is_refused(client, body):
    answer = client.post("/v1/counts", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"]


@pytest.mark.parametrize("body", ["", "{}", "link_id,slot_start\n", "link;slot_start;count\n"])
def test_a_csv_whose_header_lacks_a_column_is_refused_even_without_rows(client, body):
    answer = client.post("/v1/counts?partial=true", content=body, headers={"Content-Type": "text/csv"})
    assert answer.status_code == 422
    assert "link_id, slot_start, count" in answer.json()["detail"]
