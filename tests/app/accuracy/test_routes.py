import csv
import io
import math
from datetime import UTC, datetime

import pytest

from app.core.database import writing
from app.counts.tables import Count
from app.forecasts.tables import Forecast
from app.links.queries import link_keys
from tests.support.databases import on_sqlite
from tests.support.stored import MONDAY, SLOT, correct_count, put_counts, put_forecasts, put_rows, utc

MEASURES = [
    "rmse",
    "mare",
    "mae",
    "bias",
    "wape",
    "geh_mean",
    "geh_pass_share",
    "passes_geh",
    "coverage",
    "skill_profile",
    "skill_last_week",
    "n_used",
    "n_below_floor",
    "n_missing",
    "slots_without_forecast",
]


def slow_figures(rows, minutes=15, floor=1):
    """Compute the figures by plain loops over (count, expected, lower, upper, usual)."""
    n = len(rows)
    errors = [expected - count for count, expected, *_ in rows]
    relative = [abs(e) / row[0] for e, row in zip(errors, rows, strict=True) if row[0] >= floor]
    hourly = 60 / minutes
    geh = [math.sqrt(2 * ((m - c) * hourly) ** 2 / ((m + c) * hourly)) for c, m, *_ in rows if m + c > 0]  # of a slot
    rmse = math.sqrt(sum(e * e for e in errors) / n)
    usual = math.sqrt(sum((row[4] - row[0]) ** 2 for row in rows) / n)
    return {
        "rmse": rmse,
        "mare": sum(relative) / len(relative),
        "mae": sum(map(abs, errors)) / n,
        "bias": sum(errors) / n,
        "wape": sum(map(abs, errors)) / sum(row[0] for row in rows),
        "geh_mean": sum(geh) / len(geh),
        "geh_pass_share": sum(g < 5 for g in geh) / len(geh),
        "coverage": sum(row[2] <= row[0] <= row[3] for row in rows) / n,
        "skill_profile": 1 - rmse / usual,
        "n_used": n,
        "n_below_floor": n - len(relative),
    }


def made_up(i):
    """Return a count and its forecast: count, expected, lower, upper, usual."""
    count = (i * 37) % 83
    expected = abs(count + (i * 13) % 29 - 14.25)
    return count, expected, expected - 9.5, expected + 9.5, count + (i * 7) % 41 - 20.0


def fill(client, link_id, n, slot=SLOT, start=MONDAY, skip_count=(), skip_forecast=(), **fields):
    put_counts(client, link_id, {start + i * slot: made_up(i)[0] for i in range(n) if i not in skip_count})
    put_forecasts(
        client,
        link_id,
        [
            dict(zip(("expected", "lower", "upper", "usual"), made_up(i)[1:], strict=True))
            | {"slot_start": start + i * slot}
            | fields
            for i in range(n)
            if i not in skip_forecast
        ],
    )


def read(client, path, **query):
    answer = client.get(path, params={key.strip("_"): value for key, value in query.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


def agree(answer, expected):
    for name, value in expected.items():
        assert answer[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


class TestLinkAccuracy:
    def test_the_figures_are_those_of_plain_loops(self, client, put_link):
        put_link("A")
        fill(client, "A", 120, skip_count=(50, 51), skip_forecast=(60, 61, 62))
        answer = read(client, "/v1/links/A/accuracy")
        rows = [made_up(i) for i in range(24, 120) if i not in (50, 51, 60, 61, 62)]
        agree(answer, slow_figures(rows))
        assert (answer["n_missing"], answer["slots_without_forecast"]) == (2, 3)
        assert answer["n_used"] + answer["n_missing"] + answer["slots_without_forecast"] == 96
        assert list(answer)[: len(MEASURES)] == MEASURES
        assert (answer["from"], answer["to"]) == (utc(MONDAY + 24 * SLOT), utc(MONDAY + 120 * SLOT))
        assert answer["passes_geh"] is (answer["geh_pass_share"] >= 0.85)
        assert (answer["horizon"], answer["mare_min_count"], answer["link_id"]) == (1, 1, "A")
        assert answer["series"] is None

    @on_sqlite
    def test_windows_end_with_the_newest_count(self, client, put_link):
        put_link("A")
        fill(client, "A", 120)
        for window, n in {"90m": 6, "2h": 8, "1d": 96, "7d": 120}.items():
            answer = read(client, "/v1/links/A/accuracy", window=window)
            agree(answer, slow_figures([made_up(i) for i in range(120 - n, 120)]))
            assert answer["n_missing"] == (672 - 120 if window == "7d" else 0)

    @on_sqlite
    def test_from_and_to_are_accepted_instead(self, client, put_link):
        put_link("A")
        fill(client, "A", 120)
        answer = read(client, "/v1/links/A/accuracy", from_=utc(MONDAY + SLOT), to=utc(MONDAY + 9 * SLOT))
        agree(answer, slow_figures([made_up(i) for i in range(1, 9)]))

    def test_of_several_versions_the_last_issued_counts(self, client, put_link):
        put_link("A")
        fill(client, "A", 8, model_version=3, issued_at=5)
        others = [{"slot_start": MONDAY + i * SLOT, "expected": 1.5 * i} for i in range(8)]
        put_forecasts(client, "A", [row | {"model_version": 4, "issued_at": 4} for row in others[:6]])
        put_forecasts(client, "A", [row | {"model_version": 2, "issued_at": 6} for row in others[2:4]])
        answer = read(client, "/v1/links/A/accuracy", window="2h")
        expected = [1.5 * i if i in (2, 3) else made_up(i)[1] for i in range(8)]
        rmse = math.sqrt(sum((expected[i] - made_up(i)[0]) ** 2 for i in range(8)) / 8)
        assert answer["rmse"] == pytest.approx(rmse, rel=1e-12)
        only = read(client, "/v1/links/A/accuracy", window="2h", model_version=2)
        rmse = math.sqrt(sum((1.5 * i - made_up(i)[0]) ** 2 for i in (2, 3)) / 2)
        assert only["rmse"] == pytest.approx(rmse, rel=1e-12)
        assert (only["n_used"], only["slots_without_forecast"], only["model_version"]) == (2, 6, 2)
        series = read(client, "/v1/links/A/accuracy", window="2h", by="model_version")["series"]
        assert [(item["model_version"], item["n_used"]) for item in series] == [(2, 2), (3, 8), (4, 6)]
        assert series[0]["rmse"] == only["rmse"]
        assert [item["slots_without_forecast"] for item in series] == [6, 0, 2]

    def test_horizons_are_apart(self, client, put_link):
        put_link("A")
        fill(client, "A", 8)
        put_forecasts(
            client, "A", [{"slot_start": MONDAY + i * SLOT, "expected": 9.0, "horizon": 2} for i in range(2, 8)]
        )
        answer = read(client, "/v1/links/A/accuracy", window="2h", by="horizon", horizon=2)
        series = answer.pop("series")
        assert [(item["horizon"], item["n_used"]) for item in series] == [(1, 8), (2, 6)]
        agree(series[0], slow_figures([made_up(i) for i in range(8)]))
        assert answer["rmse"] == series[1]["rmse"]
        assert answer["slots_without_forecast"] == series[1]["slots_without_forecast"] == 2
        plain = read(client, "/v1/links/A/accuracy", window="2h", horizon=2)
        assert {k: v for k, v in plain.items() if k != "series"} == answer

    @on_sqlite
    def test_a_corrected_count_needs_no_repair(self, client, put_link):
        put_link("A")
        fill(client, "A", 8)
        correct_count(client, "A", MONDAY, 77, datetime(2025, 9, 3, tzinfo=UTC))
        rows = [(77, *made_up(0)[1:]), *(made_up(i) for i in range(1, 8))]
        agree(read(client, "/v1/links/A/accuracy", window="2h"), slow_figures(rows))

    @pytest.mark.parametrize(("day", "slots"), [((2025, 3, 30), 92), ((2025, 10, 26), 100), ((2025, 9, 1), 96)])
    @on_sqlite
    def test_days_and_hours_are_local(self, client, put_link, day, slots):
        put_link("A", zone="Europe/Berlin")
        midnight = int(datetime(*day, tzinfo=UTC).timestamp()) - (3600 if day[1] == 3 else 7200)
        fill(client, "A", slots + 4, start=midnight, skip_count=(10,))
        query = {"from_": utc(midnight), "to": utc(midnight + (slots + 4) * SLOT)}
        days = read(client, "/v1/links/A/accuracy", by="day", **query)["series"]
        assert [item["from"] for item in days] == [utc(midnight), utc(midnight + slots * SLOT)]
        assert [item["n_used"] for item in days] == [slots - 1, 4]
        assert [item["n_missing"] for item in days] == [1, 0]
        agree(days[0], slow_figures([made_up(i) for i in range(slots) if i != 10]))
        hours = read(client, "/v1/links/A/accuracy", by="hour", **query)["series"]
        assert [item["from"] for item in hours] == [utc(midnight + i * 3600) for i in range(slots // 4 + 1)]
        agree(hours[3], slow_figures([made_up(i) for i in range(12, 16)]))

    @on_sqlite
    def test_hours_of_a_zone_off_by_a_half(self, client, put_link):
        put_link("A", zone="Asia/Kolkata")
        fill(client, "A", 8)
        hours = read(client, "/v1/links/A/accuracy", by="hour", window="2h")["series"]
        assert [(item["from"], item["n_used"]) for item in hours] == [
            (utc(MONDAY - 1800), 2),
            (utc(MONDAY + 1800), 4),
            (utc(MONDAY + 5400), 2),
        ]

    @on_sqlite
    def test_skill_against_last_week_keeps_to_the_local_clock(self, client, put_link):
        put_link("A", zone="Europe/Berlin")
        # The clocks go back on 26 October: 08:00 local is 06:00 UTC before and 07:00 UTC after.
        before = int(datetime(2025, 10, 21, 6, tzinfo=UTC).timestamp())
        after = int(datetime(2025, 10, 28, 7, tzinfo=UTC).timestamp())
        put_counts(client, "A", {before + i * SLOT: 100 + i for i in range(4)})
        fill(client, "A", 4, start=after)
        answer = read(client, "/v1/links/A/accuracy", window="1h")
        theirs = math.sqrt(sum((100 + i - made_up(i)[0]) ** 2 for i in range(4)) / 4)
        assert answer["skill_last_week"] == pytest.approx(1 - answer["rmse"] / theirs, rel=1e-12)

    def test_a_link_without_counts_or_forecasts_has_no_figures(self, client, put_link):
        put_link("A")
        answer = read(client, "/v1/links/A/accuracy", by="day")
        assert [answer[name] for name in MEASURES] == [None] * 11 + [0] * 4
        assert (answer["from"], answer["to"], answer["series"]) == (None, None, [])
        put_counts(client, "A", {MONDAY + i * SLOT: i for i in range(96) if i % 2})
        answer = read(client, "/v1/links/A/accuracy", by="horizon")
        assert [answer[name] for name in MEASURES] == [None] * 11 + [0, 0, 48, 48]
        assert answer["series"] == []

    def test_zeros_are_below_the_floor_and_nothing_is_infinite(self, client, put_link):
        put_link("A")
        put_counts(client, "A", {MONDAY: 0, MONDAY + SLOT: 0})
        put_forecasts(client, "A", [{"slot_start": MONDAY + i * SLOT, "expected": 2.0 * i} for i in (0, 1)])
        answer = read(client, "/v1/links/A/accuracy")
        assert (answer["mare"], answer["n_below_floor"], answer["wape"]) == (None, 2, None)
        assert answer["rmse"] == pytest.approx(math.sqrt(2))
        assert answer["coverage"] is answer["skill_profile"] is None

    @pytest.mark.journey
    def test_a_span_of_centuries_answers(self, client, put_link):
        put_link("A", slot_minutes=1)
        put_counts(client, "A", {MONDAY: 3})
        span = {"from_": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59-14:00"}
        for by in ("hour", "day"):
            answer = read(client, "/v1/links/A/accuracy", by=by, **span)
            assert answer["slots_without_forecast"] == 1
            assert len(answer["series"]) <= 2000

    @pytest.mark.parametrize(
        "query",
        [
            {"window": "24"},
            {"window": "0h"},
            {"window": "h"},
            {"window": "9999999d"},
            {"window": "24h\n"},
            {"horizon": 0},
            {"horizon": 10**20},
            {"model_version": -1},
            {"model_version": 2**31},
            {"by": "week"},
            {"from": "2025-09-01"},
            {"from": "2025-09-02T00:00:00Z", "to": "2025-09-01T00:00:00Z"},
        ],
    )
    @on_sqlite
    def test_what_breaks_a_rule_is_refused(self, client, put_link, query):
        put_link("A")
        assert client.get("/v1/links/A/accuracy", params=query).status_code == 422

    def test_an_unknown_link_is_404(self, client):
        assert client.get("/v1/links/A/accuracy").status_code == 404


class TestNetworkAccuracy:
    def test_figures_are_those_of_all_links_together(self, client, put_link):
        put_link("A")
        put_link("B", slot_minutes=60, zone="Asia/Kathmandu")
        put_link("C")
        fill(client, "A", 96, skip_count=(3,))
        fill(client, "B", 24, slot=3600)
        answer = read(client, "/v1/accuracy")
        a, b = [made_up(i) for i in range(96) if i != 3], [made_up(i) for i in range(24)]
        together, of_a, of_b = slow_figures(a + b), slow_figures(a), slow_figures(b, minutes=60)
        for name in ("geh_mean", "geh_pass_share"):
            n_a, n_b = (sum(row[0] + row[1] > 0 for row in rows) for rows in (a, b))
            together[name] = (of_a[name] * n_a + of_b[name] * n_b) / (n_a + n_b)
        agree(answer, together)
        assert (answer["n_missing"], answer["slots_without_forecast"], answer["links_total"]) == (97, 0, 3)
        assert (answer["from"], answer["to"]) == (utc(MONDAY), utc(MONDAY + 96 * SLOT))
        links = {link["link_id"]: link for link in answer["links"]}
        agree(links["A"], of_a)
        agree(links["B"], of_b)
        assert (links["C"]["rmse"], links["C"]["n_missing"]) == (None, 96)
        assert answer["links"][-1]["link_id"] == "C"
        assert list(answer)[:2] == list(links["A"])[:2] == ["rmse", "mare"]

    @pytest.mark.parametrize("order", ["asc", "desc"])
    def test_pages_of_the_ranking_follow_each_other(self, client, put_link, order):
        for i, name in enumerate("ABCDEF"):
            put_link(name)
            if name != "F":
                put_counts(client, name, {MONDAY: 10})
                put_forecasts(client, name, [{"slot_start": MONDAY, "expected": 10.0 - (i % 3)}])
        seen, cursor = [], None
        while not seen or cursor:
            page = read(
                client, "/v1/accuracy", sort="bias", order=order, limit=2, **({"cursor": cursor} if cursor else {})
            )
            seen += [(link["bias"], link["link_id"]) for link in page["links"]]
            cursor = page["next_cursor"]
        scored = [(0.0, "A"), (0.0, "D"), (-1.0, "B"), (-1.0, "E"), (-2.0, "C")]
        scored.sort(key=lambda pair: (pair[0] if order == "asc" else -pair[0], pair[1]))
        assert seen == [*scored, (None, "F")]

    def test_an_empty_database_answers(self, client):
        answer = read(client, "/v1/accuracy")
        assert (answer["rmse"], answer["links"], answer["links_total"], answer["to"]) == (None, [], 0, None)
        assert answer["next_cursor"] is None

    @on_sqlite
    def test_any_cursor_of_the_pattern_is_understood(self, client, put_link):
        put_link("A")
        for cursor in ("ffffffffffffffff~A", "7ff0000000000000~A", "none~~", "0000000000000000~A"):
            status = client.get("/v1/accuracy", params={"cursor": cursor}).status_code
            assert status == (422 if cursor == "none~~" else 200), cursor

    @pytest.mark.parametrize("query", [{"window": "32d"}, {"sort": "name"}, {"order": "up"}, {"limit": 1001}])
    @on_sqlite
    def test_what_breaks_a_rule_is_refused(self, client, query):
        assert client.get("/v1/accuracy", params=query).status_code == 422

    @pytest.mark.journey
    def test_hundreds_of_links_are_summed_up(self, client):
        client.post("/v1/links", json={"links": [{"link_id": f"L{i}", "zone": "UTC"} for i in range(300)]})
        with writing(client.app.state.engine) as session:
            keys = link_keys(session, [f"L{i}" for i in range(300)]).values()
            pairs = [(key, MONDAY + i * SLOT) for key in keys for i in range(8)]
            stored = {"horizon": 1, "model_version": 1, "expected": 5.0, "lower": 1.0, "upper": 9.0, "usual": 4.0}
            stored |= {"level": 0.9, "method": 0, "filled_lags": 0, "issued_at": 1}
            put_rows(session, Count, [{"link_key": k, "slot_start": s, "count": 6, "quality": 0} for k, s in pairs])
            put_rows(session, Forecast, [{"link_key": k, "slot_start": s, **stored} for k, s in pairs])
        answer = read(client, "/v1/accuracy")
        assert answer["rmse"] == 1.0
        assert answer["n_used"] == 300 * 8
        assert len(answer["links"]) == 100  # a page


class TestSpansAndCsv:
    @pytest.fixture
    def measured(self, client, put_link):
        """Store two links with forecasts whose errors are 1, 2 and 3 vehicles on three days; B has ten times these."""
        for name, factor in (("A", 1), ("B", 10)):
            put_link(name, zone="Europe/Berlin")
            put_counts(client, name, {MONDAY + i * SLOT: 100 for i in range(3 * 96)})
            put_forecasts(
                client,
                name,
                [{"slot_start": MONDAY + i * SLOT, "expected": 100 + factor * (1 + i // 96)} for i in range(3 * 96)],
            )

    @on_sqlite
    def test_all_links_take_the_span_of_one(self, client, measured):
        for day in range(3):
            span = {"from": utc(MONDAY + day * 96 * SLOT), "to": utc(MONDAY + (day + 1) * 96 * SLOT)}
            network = client.get("/v1/accuracy", params=span).json()
            assert (network["from"], network["to"]) == (span["from"], span["to"])
            assert {row["link_id"]: row["mae"] for row in network["links"]} == {"A": day + 1, "B": 10 * (day + 1)}
            for row in network["links"]:
                link = client.get(f"/v1/links/{row['link_id']}/accuracy", params=span).json()
                assert {name: link[name] for name in row} == row
        last = client.get("/v1/accuracy", params={"from": utc(MONDAY + 2 * 96 * SLOT)}).json()
        assert (last["n_used"], last["to"]) == (2 * 96, utc(MONDAY + 3 * 96 * SLOT))
        before = client.get("/v1/accuracy", params={"to": utc(MONDAY + 96 * SLOT), "window": "12h"}).json()
        assert (before["from"], before["n_used"]) == (utc(MONDAY + 48 * SLOT), 2 * 48)

    @on_sqlite
    def test_a_span_that_is_too_long_or_ends_before_it_begins_is_refused(self, client, measured):
        first, last = utc(MONDAY), utc(MONDAY + 43 * 96 * SLOT)
        for span in ({"from": first, "to": last}, {"from": last, "to": first}, {"from": first, "to": first}):
            answer = client.get("/v1/accuracy", params=span)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["field"] == "from"
        assert client.get("/v1/accuracy", params={"from": first, "to": utc(MONDAY + 42 * 96 * SLOT)}).status_code == 200

    @on_sqlite
    def test_csv_of_all_links_follows_the_pages(self, client, measured):
        headers = {"Accept": "text/csv"}
        first = client.get("/v1/accuracy?limit=1&window=3d", headers=headers)
        second = client.get(f"/v1/accuracy{first.headers['link'][1:].split('>')[0]}", headers=headers)
        assert "link" not in second.headers
        rows = [next(csv.DictReader(io.StringIO(answer.text))) for answer in (first, second)]
        shown = client.get("/v1/accuracy?window=3d").json()["links"]
        assert [row["link_id"] for row in rows] == [link["link_id"] for link in shown] == ["B", "A"]
        for row, link in zip(rows, shown, strict=True):
            assert set(row) == set(link)
            assert (float(row["rmse"]), int(row["n_used"])) == (link["rmse"], link["n_used"])
            assert row["passes_geh"] == str(link["passes_geh"]).lower()
            assert row["coverage"] == ""

    @on_sqlite
    def test_csv_of_a_link_has_one_row_or_one_for_each_part(self, client, measured):
        def rows(**query):
            answer = client.get("/v1/links/A/accuracy", params=query, headers={"Accept": "text/csv"})
            return list(csv.DictReader(io.StringIO(answer.text)))

        (whole,) = rows(window="3d")
        shown = client.get("/v1/links/A/accuracy?window=3d").json()
        assert (whole["link_id"], whole["from"], whole["to"]) == ("A", shown["from"], shown["to"])
        assert (float(whole["rmse"]), whole["horizon"], whole["model_version"]) == (shown["rmse"], "1", "")
        days = rows(window="3d", by="day")
        series = client.get("/v1/links/A/accuracy?window=3d&by=day").json()["series"]
        assert [(row["from"], float(row["mae"])) for row in days] == [(part["from"], part["mae"]) for part in series]
        assert {row["link_id"] for row in days} == {"A"}
        assert {row["to"] for row in days} == {""}
