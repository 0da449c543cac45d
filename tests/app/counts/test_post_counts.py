import gzip
import json
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY

START = datetime(2025, 9, 1, tzinfo=UTC)


def slot(i: int) -> str:
    return (START + i * timedelta(minutes=15)).strftime("%Y-%m-%dT%H:%M:%SZ")


def row(i: int = 0, count: object = 5, link_id: str = "A", **more: object) -> dict[str, object]:
    return {"link_id": link_id, "slot_start": slot(i), "count": count, **more}


def post(client: TestClient, *rows: object, **query: object):
    return client.post("/v1/counts", json={"counts": list(rows)}, params=query)


def stored(client: TestClient, link_id: str = "A", **query: object) -> list[tuple[object, ...]]:
    answer = client.get(f"/v1/links/{link_id}/counts", params={"from": slot(-4), "to": slot(2000), **query})
    assert answer.status_code == 200, answer.text
    return [
        (one["slot_start"], one["count"], one["quality"]) for one in answer.json()["counts"] if one["count"] is not None
    ]


@pytest.fixture(autouse=True)
def links(put_link):
    put_link("A")
    put_link("B", slot_minutes=5, zone="Australia/Melbourne")


class TestPostCounts:
    def test_stores_counts_of_several_links(self, client):
        answer = post(client, row(0, 5), row(1, 0, quality="imputed"), row(0, 7, "B"))
        assert answer.status_code == 200
        assert answer.json() == {
            "received": 3, "stored": 3, "replaced": 0, "unchanged": 0, "refused": [], "forecasts_issued": 2,
        }  # fmt: skip
        assert stored(client) == [(slot(0), 5, "observed"), (slot(1), 0, "imputed")]

    def test_the_same_batch_again_changes_nothing(self, client):
        post(client, row(0), row(1))
        assert post(client, row(0), row(1)).json() | {"refused": None} == {
            "received": 2, "stored": 0, "replaced": 0, "unchanged": 2, "refused": None, "forecasts_issued": 0,
        }  # fmt: skip
        assert stored(client) == [(slot(0), 5, "observed"), (slot(1), 5, "observed")]

    def test_a_correction_replaces_and_is_kept_in_history(self, client):
        post(client, row(0, 5))
        assert post(client, row(0, 9), row(1, 1)).json()["replaced"] == 1
        post(client, row(0, 9, quality="suspect"))
        assert stored(client)[0] == (slot(0), 9, "suspect")
        answer = client.get("/v1/links/A/counts", params={"from": slot(0), "to": slot(1), "corrections": True})
        assert [old["count"] for old in answer.json()["counts"][0]["corrections"]] == [5, 9]

    @on_sqlite
    def test_a_whole_number_may_be_written_as_a_fraction(self, client):
        assert post(client, row(0, 42.0)).json()["stored"] == 1
        assert stored(client) == [(slot(0), 42, "observed")]

    @on_sqlite
    def test_fractions_beside_a_bad_count_and_an_unknown_quality(self, client):
        report = post(client, row(0, 42.0), row(1, 1.5), row(2), row(3, quality="x"), partial=True).json()
        assert [(one["field"], one["value"]) for one in report["refused"]] == [("count", "1.5"), ("quality", "x")]
        assert stored(client) == [(slot(0), 42, "observed"), (slot(2), 5, "observed")]

    def test_a_late_count_is_taken(self, client):
        post(client, row(100))
        assert post(client, row(3)).json()["stored"] == 1

    @on_sqlite
    def test_an_offset_names_the_same_slot(self, client):
        post(client, row(0))
        again = {"link_id": "A", "slot_start": "2025-09-01T10:00:00+10:00", "count": 5}
        assert post(client, again).json()["unchanged"] == 1

    def test_partial_stores_the_good_and_reports_each_bad_one(self, client):
        bad = [row(1, -1), row(2, link_id="nowhere"), row() | {"slot_start": "2025-09-01T00:01:00Z"}, 7]
        answer = post(client, row(0), *bad, row(3), row(0, 6), partial=True)
        report = answer.json()
        assert (answer.status_code, report["received"], report["stored"]) == (200, 7, 2)
        assert [(one["index"], one["field"]) for one in report["refused"]] == [
            (1, "count"), (2, "link_id"), (3, "slot_start"), (4, "row"), (6, "slot_start"),
        ]  # fmt: skip
        assert stored(client) == [(slot(0), 5, "observed"), (slot(3), 5, "observed")]

    def test_a_slot_that_comes_twice_in_a_batch_is_refused(self, client):
        answer = post(client, row(0), row(0, 6))
        assert answer.status_code == 422
        assert "once" in answer.json()["errors"][0]["reason"]

    @on_sqlite
    def test_each_links_own_grid_decides(self, client):
        on_five = {"link_id": "B", "slot_start": "2025-09-01T00:05:00Z", "count": 1}
        assert post(client, on_five).status_code == 200
        assert post(client, on_five | {"link_id": "A"}).status_code == 422

    @on_sqlite
    def test_an_empty_batch_is_an_empty_report(self, client):
        assert post(client).json()["received"] == 0

    @on_sqlite
    def test_another_media_type_is_refused_by_name(self, client):
        answer = client.post("/v1/counts", content=b"<a/>", headers={"content-type": "application/xml"})
        assert answer.status_code == 415
        assert answer.json()["title"] == "Unsupported media type"
        assert "application/xml" in answer.json()["detail"]

    @on_sqlite
    def test_more_than_the_limit_is_refused(self, settings):
        with TestClient(
            create_app(settings.model_copy(update={"max_batch": 2})), headers={"X-API-Key": ADMIN_KEY}
        ) as client:
            assert post(client, row(0), row(1)).status_code == 200
            assert post(client, row(0), row(1), row(2)).status_code == 413


class TestLanguages:
    CSV = f"link_id,slot_start,count,quality\nA,{slot(0)},5,\nA,{slot(1)},6,suspect\n"

    @on_sqlite
    def test_csv(self, client):
        answer = client.post("/v1/counts", content=self.CSV, headers={"content-type": "text/csv; charset=utf-8"})
        assert answer.json()["stored"] == 2
        assert stored(client) == [(slot(0), 5, "observed"), (slot(1), 6, "suspect")]

    @on_sqlite
    def test_json_lines(self, client):
        lines = "\n".join(json.dumps(row(i)) for i in range(3)) + "\n\n"
        answer = client.post("/v1/counts", content=lines, headers={"content-type": "application/x-ndjson"})
        assert answer.json()["stored"] == 3

    @pytest.mark.parametrize("content_type", ["application/json", "text/csv"])
    @on_sqlite
    def test_gzip(self, client, content_type):
        body = self.CSV if content_type == "text/csv" else json.dumps({"counts": [row(0), row(1)]})
        headers = {"content-type": content_type, "content-encoding": "gzip"}
        assert client.post("/v1/counts", content=gzip.compress(body.encode()), headers=headers).json()["stored"] == 2

    @on_sqlite
    def test_a_bad_csv_row_is_refused_by_name(self, client):
        body = self.CSV + f"A,{slot(2)},many,\n"
        answer = client.post("/v1/counts", content=body, headers={"content-type": "text/csv"})
        assert answer.json()["errors"][0]["field"] == "counts.2.count"

    @on_sqlite
    def test_a_csv_without_a_column_names_it(self, client):
        answer = client.post("/v1/counts", content="link_id,slot_start\nA,x\n", headers={"content-type": "text/csv"})
        assert answer.status_code == 422


class TestTime:
    @pytest.fixture
    def wall_client(self, settings):
        with TestClient(
            create_app(settings.model_copy(update={"clock": "wall"})), headers={"X-API-Key": ADMIN_KEY}
        ) as client:
            yield client

    @on_sqlite
    def test_a_slot_in_the_future_is_refused_by_name(self, wall_client):
        ahead = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
        answer = post(wall_client, row() | {"slot_start": ahead.isoformat()})
        assert answer.status_code == 422
        assert "future" in answer.json()["errors"][0]["reason"]

    @on_sqlite
    def test_the_slot_before_this_one_is_taken(self, wall_client):
        now = datetime.now(UTC)
        begun = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
        assert post(wall_client, row() | {"slot_start": (begun - timedelta(minutes=15)).isoformat()}).status_code == 200


class TestTwoClientsAtOnce:
    def test_every_correction_is_in_history_exactly_once(self, client):
        def send(count: int) -> None:
            for _ in range(5):
                assert post(client, *(row(i, count) for i in range(20))).status_code == 200

        threads = [threading.Thread(target=send, args=(count,)) for count in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answer = client.get("/v1/links/A/counts", params={"from": slot(0), "to": slot(20), "corrections": True}).json()
        for one in answer["counts"]:
            # Each replaced value differs from what came after it: nothing was replaced unseen.
            chain = [old["count"] for old in one["corrections"]] + [one["count"]]
            assert all(before != after for before, after in pairwise(chain))

    def test_links_sent_in_opposite_order_do_not_block_each_other(self, client, put_link):
        for name in "CDEF":
            put_link(name)
        rows = [row(i, 1, name) for name in "CDEF" for i in range(50)]
        failures = []

        def send(batch: list[dict[str, object]]) -> None:
            answer = post(client, *batch)
            if answer.status_code != 200:
                failures.append(answer.text)

        threads = [threading.Thread(target=send, args=(batch,)) for batch in (rows, rows[::-1], rows, rows[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(stored(client, "C")) == 50
