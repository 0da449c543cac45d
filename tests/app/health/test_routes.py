from datetime import UTC, datetime

import pytest

from tests.support.databases import on_sqlite
from tests.support.stored import MONDAY, SLOT, put_counts, utc

DAY = 86_400


def wave(n, start=MONDAY, slot=SLOT):
    """Return counts that are neither stuck nor dead."""
    return {start + i * slot: 40 + (i * 7) % 23 for i in range(n)}


def last(n):
    return list(wave(n).values())[-1]


def read(client, path, **query):
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestLinkHealth:
    @on_sqlite
    def test_sound_counts_are_ok(self, client, put_link):
        put_link("A")
        put_counts(client, "A", wave(10 * 96))
        answer = read(client, "/v1/links/A/health", days=3)
        assert (answer["state"], answer["data_age_seconds"], answer["verdicts"]) == ("ok", 0, [])
        assert answer["newest_slot"] == utc(MONDAY + 10 * DAY - SLOT)
        full = {"expected": 96, "observed": 96, "imputed": 0, "suspect": 0, "missing": 0}
        assert answer["days"] == [{"day": f"2025-09-{day:02}", **full} for day in (8, 9, 10)]

    def test_never_a_count_is_silent(self, client, put_link):
        put_link("A")
        answer = read(client, "/v1/links/A/health")
        assert answer == {
            "link_id": "A",
            "state": "silent",
            "newest_slot": None,
            "data_age_seconds": None,
            "stale_after_minutes": 90,
            "verdicts": [],
            "days": [],
        }

    @on_sqlite
    def test_a_feed_that_stopped_is_stale(self, client, put_link):
        put_link("A")
        put_link("B")
        put_counts(client, "A", wave(10 * 96))
        put_counts(client, "B", wave(1, start=MONDAY + 10 * DAY + 5 * SLOT))
        assert read(client, "/v1/links/A/health")["state"] == "ok"  # 90 minutes old, not older
        put_counts(client, "B", wave(1, start=MONDAY + 10 * DAY + 6 * SLOT))
        answer = read(client, "/v1/links/A/health")
        assert (answer["state"], answer["data_age_seconds"]) == ("stale", 7 * SLOT)

    @on_sqlite
    def test_a_dead_detector_is_listed_with_its_slots(self, client, put_link):
        put_link("A")
        counts = wave(10 * 96) | {MONDAY + 9 * DAY + i * SLOT: 0 for i in range(40, 60)}
        put_counts(client, "A", counts)
        answer = read(client, "/v1/links/A/health")
        assert answer["state"] == "suspect"
        (verdict,) = answer["verdicts"]
        assert (verdict["name"], verdict["slots"]) == ("dead", 20)
        assert (verdict["from"], verdict["to"]) == (
            utc(MONDAY + 9 * DAY + 40 * SLOT),
            utc(MONDAY + 9 * DAY + 60 * SLOT),
        )
        assert "20 slots of zero where about" in verdict["reason"]

    @on_sqlite
    def test_what_was_wrong_days_ago_no_longer_casts_doubt(self, client, put_link):
        put_link("A")
        put_counts(client, "A", wave(10 * 96) | {MONDAY + 5 * DAY + i * SLOT: 33 for i in range(20)})
        answer = read(client, "/v1/links/A/health")
        assert [verdict["name"] for verdict in answer["verdicts"]] == ["stuck"]
        assert answer["state"] == "ok"
        assert read(client, "/v1/links/A/health", days=2)["verdicts"] == []

    @pytest.mark.parametrize(("minutes", "per_hour"), [(15, 200), (60, 50)])
    @on_sqlite
    def test_capacity_is_per_hour(self, client, put_link, minutes, per_hour):
        put_link("A", slot_minutes=minutes, capacity=per_hour)
        slots = 10 * 1440 // minutes
        counts = {MONDAY + i * 60 * minutes: 20 + i % 30 for i in range(slots)}  # at most 49 a slot
        counts[MONDAY + (slots - 3) * 60 * minutes] = 75  # half as much again as the capacity
        counts[MONDAY + (slots - 2) * 60 * minutes] = 76
        put_counts(client, "A", counts)
        (verdict,) = read(client, "/v1/links/A/health")["verdicts"]
        assert (verdict["name"], verdict["reason"]) == ("impossible", "76 is above 75, 1.5 times the capacity of 50")

    @pytest.mark.parametrize(("day", "slots"), [((2025, 3, 30), 92), ((2025, 10, 26), 100)])
    @on_sqlite
    def test_local_days_have_92_and_100_slots(self, client, put_link, day, slots):
        put_link("A", zone="Europe/Berlin")
        midnight = int(datetime(*day, tzinfo=UTC).timestamp()) - (3600 if day[1] == 3 else 7200)
        counts = wave(slots + 8, start=midnight)
        for i in (5, 6, 7):
            del counts[midnight + i * SLOT]
        put_counts(client, "A", counts)
        put_counts(client, "A", {midnight + 5 * SLOT: 9}, quality="imputed")
        put_counts(client, "A", {midnight + 6 * SLOT: 9}, quality="suspect")
        answer = read(client, "/v1/links/A/health", days=2)
        first, second = answer["days"]
        assert first == {
            "day": "{}-{:02}-{:02}".format(*day),
            "expected": slots,
            "observed": slots - 3,
            "imputed": 1,
            "suspect": 1,
            "missing": 1,
        }
        # The day is under way: what has not happened yet is not missing.
        assert (second["expected"], second["observed"], second["missing"]) == (96, 8, 0)
        assert [verdict["name"] for verdict in answer["verdicts"]] == ["too_few"]
        assert answer["state"] == "ok"

    @on_sqlite
    def test_a_span_shows_the_local_days_it_touches(self, client, put_link):
        put_link("A", zone="Europe/Berlin")
        counts = wave(20 * 96) | {MONDAY + 5 * DAY + i * SLOT: 33 for i in range(40, 60)}
        counts |= {MONDAY + 19 * DAY + i * SLOT: 0 for i in range(40, 60)}
        put_counts(client, "A", counts)
        span = {"from": utc(MONDAY + 5 * DAY), "to": utc(MONDAY + 6 * DAY)}  # of UTC: two days in Berlin
        answer = read(client, "/v1/links/A/health", **span)
        assert [day["day"] for day in answer["days"]] == ["2025-09-06", "2025-09-07"]
        assert [verdict["name"] for verdict in answer["verdicts"]] == ["stuck"]
        assert answer["state"] == "suspect"  # of the newest day, whichever days are shown
        answer = read(client, "/v1/links/A/health", days=3, to=utc(MONDAY + 10 * DAY - 2 * 3600))
        assert [day["day"] for day in answer["days"]] == ["2025-09-08", "2025-09-09", "2025-09-10"]
        assert answer["verdicts"] == []
        answer = read(client, "/v1/links/A/health", **{"from": utc(MONDAY + 19 * DAY)})
        assert [day["day"] for day in answer["days"]] == ["2025-09-20", "2025-09-21"]
        assert [verdict["name"] for verdict in answer["verdicts"]] == ["dead"]
        later = read(client, "/v1/links/A/health", days=2, to=utc(MONDAY + 99 * DAY))
        assert [(day["observed"], day["missing"]) for day in later["days"]] == [(0, 0)] * 2

    @on_sqlite
    def test_a_span_that_is_too_long_or_ends_before_it_begins_is_refused(self, client, put_link):
        put_link("A", zone="UTC")
        put_counts(client, "A", wave(96))
        first = utc(MONDAY)
        for span in (
            {"from": first, "to": utc(MONDAY + 367 * DAY)},
            {"from": first, "to": first},
            {"from": utc(MONDAY + 2 * DAY)},
            {"from": utc(MONDAY - 366 * DAY)},
        ):
            answer = client.get("/v1/links/A/health", params=span)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["field"] == "from"
        whole = {"from": first, "to": utc(MONDAY + 366 * DAY)}
        assert len(read(client, "/v1/links/A/health", **whole)["days"]) == 366

    @on_sqlite
    def test_an_unknown_link_is_404_and_odd_days_are_422(self, client):
        assert client.get("/v1/links/A/health").status_code == 404
        for days in (0, 367, 10**20, "x"):
            assert client.get("/v1/links/A/health", params={"days": days}).status_code == 422

    @pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
    def test_the_first_count_of_all_time_is_no_problem(self, client, put_link, zone):
        put_link("A", zone=zone, slot_minutes=1440)
        put_counts(client, "A", {0: 5})
        assert len(read(client, "/v1/links/A/health", days=366)["days"]) == 366
        assert read(client, "/v1/health")["links"][0]["verdicts"] == ["too_few"]


class TestNetworkHealth:
    def test_totals_and_a_row_for_each_link(self, client, put_link):
        for name in "ABCD":
            put_link(name)
        put_counts(client, "A", wave(9 * 96))
        stuck = wave(9 * 96) | {MONDAY + 9 * DAY - i * SLOT: 33 for i in range(1, 11)}
        del stuck[MONDAY + 9 * DAY - 20 * SLOT]
        put_counts(client, "B", stuck)
        put_counts(client, "C", wave(96))
        answer = read(client, "/v1/health")
        assert answer["totals"] == {"links": 4, "live": 2, "stale": 1, "silent": 1}
        rows = {row["link_id"]: row for row in answer["links"]}
        assert {name: row["state"] for name, row in rows.items()} == {
            "A": "ok",
            "B": "suspect",
            "C": "stale",
            "D": "silent",
        }
        assert {name: row["verdicts"] for name, row in rows.items()} == {
            "A": [],
            "B": ["stuck"],
            "C": ["too_few"],
            "D": [],
        }
        assert [rows[name]["completeness"] for name in "ABCD"] == [1.0, 95 / 96, 0.0, None]
        assert [rows[name]["newest_count"] for name in "ABCD"] == [last(9 * 96), 33, last(96), None]
        assert rows["C"]["data_age_seconds"] == 8 * DAY
        assert answer["next_cursor"] is None

    def test_pages_follow_each_other(self, client, put_link):
        for name in ("b", "B", "a-1", "a1"):
            put_link(name)
        first = read(client, "/v1/health", limit=3)
        second = read(client, "/v1/health", limit=3, cursor=first["next_cursor"])
        names = [row["link_id"] for page in (first, second) for row in page["links"]]
        assert names == ["B", "a-1", "a1", "b"]
        assert first["totals"]["links"] == second["totals"]["links"] == 4
        assert second["next_cursor"] is None

    def test_an_empty_database_answers(self, client):
        assert read(client, "/v1/health")["totals"] == {"links": 0, "live": 0, "stale": 0, "silent": 0}
