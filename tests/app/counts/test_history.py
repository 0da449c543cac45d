from datetime import UTC, datetime

import pytest

from tests.support.databases import on_sqlite
from tests.support.stored import MONDAY, SLOT, correct_count, put_counts, utc


@pytest.fixture
def link(client, put_link):
    """Store a day and a half of counts with a gap of two slots in the last day."""
    put_link("A", zone="Europe/Berlin")
    counts = {MONDAY + i * SLOT: i for i in range(144) if i not in (100, 101)}
    put_counts(client, "A", counts)
    return "/v1/links/A/counts"


def read(client, path, **query):
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestGetCounts:
    def test_by_default_it_is_the_last_24_hours_with_gaps(self, client, link):
        page = read(client, link)
        assert (page["from"], page["to"]) == (utc(MONDAY + 48 * SLOT), utc(MONDAY + 144 * SLOT))
        assert [slot["slot_start"] for slot in page["counts"]] == [utc(MONDAY + i * SLOT) for i in range(48, 144)]
        known = {"slot_start": "2025-09-01T12:00:00Z", "count": 48, "quality": "observed", "verdict": None}
        gap = {"slot_start": "2025-09-02T01:00:00Z", "count": None, "quality": None, "verdict": None}
        assert (page["counts"][0], page["counts"][52]) == (known, gap)
        assert (page["link_id"], page["slot_minutes"], page["next_cursor"]) == ("A", 15, None)

    @pytest.mark.parametrize(
        ("begin", "end", "expected"),
        [
            ("2025-09-01T00:00:00Z", "2025-09-01T00:45:00Z", [0, 1, 2]),
            ("2025-09-01T02:00:00+02:00", "2025-09-01T02:45:00.5+02:00", [0, 1, 2, 3]),
            ("2025-09-01T02:00:01 02:00", "2025-09-01t02:45:00+02:00", [1, 2]),
            ("2025-09-01 02:00 02:00", "2025-09-01 00:30z", [0, 1]),
            ("0001-01-01T00:00:00+14:00", "0005-01-01T00:00:00Z", []),
            ("9990-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-14:00", []),
        ],
    )
    @on_sqlite
    def test_times_carry_any_offset(self, client, link, begin, end, expected):
        page = read(client, link, **{"from": begin, "to": end})
        assert [slot["count"] for slot in page["counts"]] == expected

    def test_a_plus_that_was_not_escaped_is_understood(self, client, link):
        answer = client.get(f"{link}?from=2025-09-01T02:00:00+02:00&to=2025-09-01T02:15:00+02:00")
        assert [slot["count"] for slot in answer.json()["counts"]] == [0]

    @pytest.mark.parametrize(
        "query",
        [
            {"from": "2025-09-01T00:00:00"},
            {"from": "2025-09-01"},
            {"from": "12345"},
            {"from": ""},
            {"from": "2025-02-30T00:00:00Z"},
            {"to": "2025-09-01T00:00:00+99:00"},
            {"from": "2025-09-02T00:00:00Z", "to": "2025-09-02T00:00:00Z"},
            {"limit": 0},
            {"limit": 10001},
            {"cursor": "x"},
            {"cursor": "-1"},
            {"cursor": "9" * 30},
        ],
    )
    @on_sqlite
    def test_what_breaks_a_rule_is_refused_by_name(self, client, link, query):
        answer = client.get(link, params=query)
        assert answer.status_code == 422
        assert next(iter(query)) in answer.json()["errors"][0]["field"]

    def test_one_bound_is_enough(self, client, link):
        page = read(client, link, **{"from": utc(MONDAY + 140 * SLOT)})
        assert [slot["count"] for slot in page["counts"]] == [140, 141, 142, 143]
        page = read(client, link, to=utc(MONDAY + 96 * SLOT))
        assert [slot["count"] for slot in page["counts"]] == list(range(96))
        assert read(client, link, **{"from": "2030-01-01T00:00:00Z"})["counts"] == []

    def test_pages_follow_each_other_whatever_comes_meanwhile(self, client, link):
        first = read(client, link, limit=40)
        put_counts(client, "A", {MONDAY + 144 * SLOT: 144})
        second = read(client, link, limit=40, cursor=first["next_cursor"])
        third = read(client, link, limit=40, cursor=second["next_cursor"])
        slots = [slot["slot_start"] for page in (first, second, third) for slot in page["counts"]]
        assert slots == [utc(MONDAY + i * SLOT) for i in range(48, 145)]
        assert third["next_cursor"] is None

    def test_a_wide_span_is_read_in_pages(self, client, link):
        page = read(client, link, **{"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T00:00:00Z", "limit": 10000})
        assert len(page["counts"]) == 10000
        assert page["from"] == "1970-01-01T00:00:00Z"
        assert page["next_cursor"] == str(10000 * SLOT)

    def test_corrections_on_request(self, client, link):
        for count, hour in ((7, 9), (8, 10)):
            correct_count(client, "A", MONDAY, count, datetime(2025, 9, 3, hour, tzinfo=UTC))
        span = {"from": utc(MONDAY), "to": utc(MONDAY + 2 * SLOT)}
        page = read(client, link, **span, corrections="true")
        assert page["counts"][0]["count"] == 8
        assert page["counts"][0]["corrections"] == [
            {"count": 0, "quality": "observed", "replaced_at": "2025-09-03T09:00:00Z", "reason": None},
            {"count": 7, "quality": "observed", "replaced_at": "2025-09-03T10:00:00Z", "reason": None},
        ]
        assert page["counts"][1]["corrections"] == []
        assert "corrections" not in read(client, link, **span)["counts"][0]

    def test_csv_by_accept(self, client, link):
        put_counts(client, "A", {MONDAY + 100 * SLOT: 3}, quality="imputed")
        query = {"from": utc(MONDAY + 99 * SLOT), "limit": 3}
        answer = client.get(link, params=query, headers={"Accept": "text/csv"})
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.text.splitlines() == [
            "slot_start,count,quality,verdict",
            "2025-09-02T00:45:00Z,99,observed,",
            "2025-09-02T01:00:00Z,3,imputed,",
            "2025-09-02T01:15:00Z,,,",
        ]
        following = client.get(f"{link}{answer.headers['link'][1:].split('>')[0]}", headers={"Accept": "text/csv"})
        assert following.text.splitlines()[1].startswith("2025-09-02T01:30:00Z,102,")

    def test_a_link_without_counts_answers(self, client, put_link):
        put_link("A", slot_minutes=60)
        assert read(client, "/v1/links/A/counts") == {
            "link_id": "A",
            "slot_minutes": 60,
            "from": None,
            "to": None,
            "counts": [],
            "next_cursor": None,
        }
        span = {"from": utc(MONDAY), "to": utc(MONDAY + 7200)}
        assert [slot["count"] for slot in read(client, "/v1/links/A/counts", **span)["counts"]] == [None, None]

    def test_an_unknown_link_is_404(self, client):
        assert client.get("/v1/links/A/counts").status_code == 404
