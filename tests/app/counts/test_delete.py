"""Deleting counts: kept among the corrections, forecasts from what is left, and a feed clock that moves back."""

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY
from tests.support.stored import MONDAY, SLOT, put_counts, utc
from tests.support.waiting import wait_until

KEY = {"X-API-Key": ADMIN_KEY}
REASON = "detector fault"
DAY = 96


def delete(client, first, last, link_id="A", reason=REASON):
    query = {"from": utc(first), "to": utc(last), "reason": reason}
    return client.delete(f"/v1/links/{link_id}/counts", params=query)


def post(client, slot, count, link_id="A"):
    row = {"link_id": link_id, "slot_start": utc(slot), "count": count}
    return client.post("/v1/counts", json={"counts": [row]})


def history(client, first, last, link_id="A"):
    query = {"from": utc(first), "to": utc(last), "corrections": "true"}
    return client.get(f"/v1/links/{link_id}/counts", params=query).json()["counts"]


def forecast(client, link_id="A"):
    answer = client.get(f"/v1/links/{link_id}/forecast")
    assert answer.status_code == 200, answer.text
    return answer.json()["forecasts"][0]


def feed_clock(client):
    return client.app.state.clock.now().timestamp()


@pytest.fixture(autouse=True)
def link(put_link):
    return put_link("A", zone="UTC")


class TestDeleteCounts:
    def test_deleted_counts_are_kept_with_the_reason(self, client):
        put_counts(client, "A", {MONDAY + i * SLOT: 10 + i for i in range(4)})
        answer = delete(client, MONDAY + SLOT, MONDAY + 3 * SLOT, reason=f" {REASON} ")
        assert answer.status_code == 200, answer.text
        span = {"from": utc(MONDAY + SLOT), "to": utc(MONDAY + 3 * SLOT)}
        assert answer.json() == {"link_id": "A", **span, "reason": REASON, "deleted": 2}
        kept, first, second, last = history(client, MONDAY, MONDAY + 4 * SLOT)
        assert (kept["count"], first["count"], second["count"], last["count"]) == (10, None, None, 13)
        assert kept["corrections"] == last["corrections"] == []
        (one,) = first["corrections"]
        assert one.pop("replaced_at")
        assert one == {"count": 11, "quality": "observed", "reason": REASON}
        assert delete(client, MONDAY + SLOT, MONDAY + 3 * SLOT).json()["deleted"] == 0

    def test_a_count_sent_again_is_stored_beside_what_was_deleted(self, client):
        put_counts(client, "A", {MONDAY: 10})
        delete(client, MONDAY, MONDAY + SLOT).raise_for_status()
        assert post(client, MONDAY, 12).json()["stored"] == 1
        (slot,) = history(client, MONDAY, MONDAY + SLOT)
        assert (slot["count"], [one["reason"] for one in slot["corrections"]]) == (12, [REASON])

    def test_other_links_keep_theirs(self, client, put_link):
        put_link("B")
        put_counts(client, "A", {MONDAY: 10})
        put_counts(client, "B", {MONDAY: 20})
        assert delete(client, 0, MONDAY + SLOT).json()["deleted"] == 1
        assert history(client, MONDAY, MONDAY + SLOT, "B")[0]["count"] == 20

    @pytest.mark.parametrize(
        ("change", "field", "rule"),
        [
            ({"reason": " "}, "reason", "at least 1 character"),
            ({"reason": "x" * 501}, "reason", "at most 500 characters"),
            ({"reason": None}, "reason", "is required"),
            ({"from": None}, "from", "is required"),
            ({"to": None}, "to", "is required"),
            ({"to": "2025-09-01T00:00:00"}, "to", "RFC 3339 time with an offset"),
            ({"to": "2020-01-01T00:00:00Z"}, "from", "must lie before to="),
        ],
    )
    @on_sqlite
    def test_what_breaks_a_rule_is_refused_and_deletes_nothing(self, client, change, field, rule):
        put_counts(client, "A", {MONDAY: 10})
        query = {"from": utc(MONDAY), "to": utc(MONDAY + SLOT), "reason": REASON} | change
        given = {name: value for name, value in query.items() if value is not None}
        answer = client.delete("/v1/links/A/counts", params=given)
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert field in error["field"]
        assert rule in error["reason"]
        assert history(client, MONDAY, MONDAY + SLOT)[0]["count"] == 10

    @on_sqlite
    def test_a_link_that_is_not_there_is_404(self, client):
        assert delete(client, MONDAY, MONDAY + SLOT, "absent").status_code == 404

    @on_sqlite
    def test_it_is_audited(self, client):
        delete(client, MONDAY, MONDAY + SLOT).raise_for_status()
        (call, *_) = client.get("/v1/admin/audit").json()["calls"]
        assert (call["method"], call["path"], call["status"]) == ("DELETE", "/v1/links/A/counts", 200)


class TestForecasts:
    def test_every_process_follows_the_newest_count_that_is_left(self, client, settings):
        put_counts(client, "A", {MONDAY: 10})
        assert post(client, MONDAY + SLOT, 999).json()["forecasts_issued"] == 1
        with TestClient(create_app(settings), headers=KEY) as other:
            assert {forecast(one)["expected_count"] for one in (client, other)} == {999.0}
            delete(client, MONDAY + SLOT, MONDAY + 2 * SLOT).raise_for_status()
            for one in (client, other):
                wait_until(lambda one=one: forecast(one)["as_of_slot"] == utc(MONDAY))
                assert forecast(one)["expected_count"] == 10.0
            past = client.get("/v1/links/A/forecasts", params={"from": utc(MONDAY), "to": utc(MONDAY + 10 * SLOT)})
            assert 999.0 in [one["expected_count"] for one in past.json()["forecasts"]]  # kept in history
            assert post(other, MONDAY + SLOT, 12).json()["forecasts_issued"] == 1  # for the same slots as 999 was
            for one in (client, other):
                wait_until(lambda one=one: forecast(one)["as_of_slot"] == utc(MONDAY + SLOT))
                assert forecast(one)["expected_count"] == 12.0

    def test_a_count_deleted_before_the_newest_is_forgotten_by_the_profile(self, client):
        counts = {MONDAY + i * SLOT: 40 for i in range(10 * DAY)}
        wrong = MONDAY + 9 * DAY * SLOT  # at the time of day of the slot to come
        put_counts(client, "A", counts | {wrong: 4000})
        before = forecast(client)
        assert before["method"] == "profile"
        assert before["expected_count"] > 100
        delete(client, wrong, wrong + SLOT).raise_for_status()
        after = forecast(client)
        assert (after["as_of_slot"], after["expected_count"]) == (before["as_of_slot"], 40.0)
        assert forecast(client) == after  # stored, and served as it is

    def test_without_a_count_left_there_is_none(self, client):
        put_counts(client, "A", {MONDAY: 10})
        assert forecast(client)["expected_count"] == 10.0
        delete(client, MONDAY, MONDAY + SLOT).raise_for_status()
        assert client.get("/v1/links/A/forecast").status_code == 409


class TestFeedClock:
    def test_it_moves_back_in_every_process(self, client, settings):
        put_counts(client, "A", {MONDAY: 10, MONDAY + 100 * SLOT: 11})
        with TestClient(create_app(settings), headers=KEY) as other:
            assert feed_clock(client) == feed_clock(other) == MONDAY + 101 * SLOT
            delete(client, MONDAY + 100 * SLOT, MONDAY + 101 * SLOT).raise_for_status()
            for one in (client, other):
                wait_until(lambda one=one: feed_clock(one) == MONDAY + SLOT)
            delete(other, MONDAY, MONDAY + SLOT).raise_for_status()
            for one in (client, other):
                wait_until(lambda one=one: feed_clock(one) == 0)

    def test_a_slot_more_than_31_days_ahead_is_refused_by_name(self, client):
        last = MONDAY + 31 * DAY * SLOT
        assert post(client, MONDAY, 1).status_code == 200
        answer = post(client, last + SLOT, 2)
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["field"], error["value"]) == ("counts.0.slot_start", utc(last + SLOT))
        assert "more than 31 days after the newest count of any link" in error["reason"]
        assert feed_clock(client) == MONDAY + SLOT
        assert post(client, last, 2).status_code == 200

    @on_sqlite
    def test_the_first_count_of_all_may_lie_anywhere_and_so_may_imported_ones(self, client):
        assert post(client, MONDAY, 1).status_code == 200
        file = "link_id,slot_start,count\nA,2096-01-01T00:00:00Z,2\n"
        assert client.post("/v1/import", content=file).json()["stored"] == 1
