"""Intervals of other levels are scaled from the issued ones."""

import csv
import io

import pytest

from app.core.errors import Invalid
from app.forecasts.issued_forecast import IssuedForecast
from app.forecasts.levels import at_level, level_columns, offset_ratio, parse_levels
from app.forecasts.schemas import LINK_COLUMNS
from app.links.queries import LinkInfo
from tests.support.databases import on_sqlite

LINK = LinkInfo(1, "A", "A", "UTC", 15, None)
ISSUED = IssuedForecast(
    LINK, 900, 1, "KR", None, 0, 0.9, [10.0] * 4, [4.0, 0.0, 9.999, None], [30.0, 10.0, 10.001, None], [None] * 4, 0
)


@pytest.fixture
def path(city):
    return f"/v1/links/{next(iter(city.counts))}/forecast"


def items(client, path, **query):
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["forecasts"]


class TestAtLevel:
    def test_of_its_own_level_it_is_as_it_was_issued(self):
        assert at_level(ISSUED, 0.9) is ISSUED
        assert offset_ratio(0.9, 0.9) == 1.0

    def test_ends_lie_as_much_further_as_those_of_normal_errors(self):
        wider = at_level(ISSUED, 0.95)
        assert offset_ratio(0.95, 0.9) == pytest.approx(1.959964 / 1.644854, abs=1e-6)
        assert wider.level == 0.95
        assert wider.upper[0] == pytest.approx(10 + 20 * 1.959964 / 1.644854, abs=6e-4)
        assert wider.lower[0] == pytest.approx(10 - 6 * 1.959964 / 1.644854, abs=6e-4)
        assert wider.lower[1] == 0.0  # never below
        assert (wider.lower[3], wider.upper[3]) == (None, None)

    def test_a_model_of_another_level_is_scaled_from_that(self):
        assert at_level(ISSUED._replace(level=0.95), 0.9).upper[0] == pytest.approx(
            10 + 20 * 1.644854 / 1.959964, abs=6e-4
        )


class TestParse:
    def test_levels_are_separated_by_commas(self):
        assert parse_levels("0.5,0.8,0.95") == (0.5, 0.8, 0.95)
        assert parse_levels(None) == ()
        assert level_columns((0.5, 0.0001)) == ["lower_0.5", "upper_0.5", "lower_0.0001", "upper_0.0001"]
        assert level_columns((0.5,)) == []

    def test_a_level_that_comes_twice_is_refused(self):
        with pytest.raises(Invalid, match=r"level='0.5,0.50' is refused; it must name each level once"):
            parse_levels("0.5,0.50")

    @pytest.mark.parametrize(
        "level",
        ["", "0", "1", "0.0", "0.0000", "1.5", "-0.5", "90", "90%", "0.12345", "nan", "0.5;0.8", "0.5,", "0.5, 0.8",
         "0.5,1", "0.1,0.2,0.3,0.4,0.5,0.6", "1e-1", "0.5,0.500"],
    )  # fmt: skip
    @pytest.mark.parametrize("call", ["/v1/forecasts", "/v1/links/A/forecast"])
    def test_what_is_no_level_is_refused_with_the_rule(self, shared_client, call, level):
        answer = shared_client.get(call, params={"level": level})
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["field"], error["value"]) == ("level", level)
        assert error["reason"] in (
            "must be 1 to 5 levels between 0 and 1, such as 0.5,0.95, each with at most four decimals",
            "must name each level once",
        )

    @pytest.mark.parametrize("level", ["0.5", "0.0001", "0.9999", "0.5000", "0.1,0.2,0.3,0.4,0.5", "0.01,0.001"])
    @on_sqlite
    def test_what_is_one_is_not(self, client, path, level):
        assert items(client, path, level=level)[0]["level"] == float(level.split(",")[0])


class TestServed:
    def test_one_level_replaces_the_issued_one(self, client, path):
        for before, one in zip(
            items(client, path, horizon=4), items(client, path, horizon=4, level="0.5"), strict=True
        ):
            assert one["level"] == 0.5
            assert before["lower"] <= one["lower"] <= one["expected_count"] <= one["upper"] <= before["upper"]
            same = ("level", "lower", "upper")
            assert {**one, **dict.fromkeys(same)} == {**before, **dict.fromkeys(same)}
            assert "intervals" not in one
        assert items(client, path, horizon=4, level="0.9") == items(client, path, horizon=4)

    @pytest.mark.parametrize("horizon", [4, 96])
    @on_sqlite
    def test_several_are_listed_in_their_order_beside_the_first(self, client, path, horizon):
        for one in items(client, path, horizon=horizon, level="0.8,0.5,0.95"):
            intervals = {interval["level"]: interval for interval in one["intervals"]}
            assert list(intervals) == [0.8, 0.5, 0.95]
            assert {name: one[name] for name in ("level", "lower", "upper")} == intervals[0.8]
            ends = [intervals[level]["lower"] for level in (0.95, 0.8, 0.5)]
            ends += [one["expected_count"], *(intervals[level]["upper"] for level in (0.5, 0.8, 0.95))]
            assert ends == sorted(ends)
            assert ends[0] >= 0.0

    @on_sqlite
    def test_all_links_have_them(self, client, city):
        for link in client.get("/v1/forecasts?horizon=4&level=0.5,0.95").json()["links"]:
            path = f"/v1/links/{link['link_id']}/forecast"
            assert link["forecasts"] == items(client, path, horizon=4, level="0.5,0.95")

    @on_sqlite
    def test_explanations_and_past_slots_have_them(self, client, path):
        expected = items(client, path, level="0.5,0.95")
        assert items(client, path, level="0.5,0.95", explain=True) == expected
        (one,) = items(client, path, level="0.5,0.95", as_of=expected[0]["as_of_slot"])
        assert one["intervals"] == expected[0]["intervals"]

    @on_sqlite
    def test_csv_has_a_pair_of_columns_for_each_of_several(self, client, path):
        def columns(level: str) -> dict[str, str]:
            text = client.get(path, params={"level": level}, headers={"Accept": "text/csv"}).text
            (row,) = csv.DictReader(io.StringIO(text))
            return row

        assert list(columns("0.5")) == LINK_COLUMNS
        (one,) = items(client, path, level="0.5,0.95")
        row = columns("0.5,0.95")
        assert list(row) == [*LINK_COLUMNS, "lower_0.5", "upper_0.5", "lower_0.95", "upper_0.95"]
        assert [float(row["lower"]), float(row["upper"])] == [float(row["lower_0.5"]), float(row["upper_0.5"])]
        assert [float(row["lower_0.95"]), float(row["upper_0.95"])] == [
            one["intervals"][1]["lower"],
            one["intervals"][1]["upper"],
        ]

    @on_sqlite
    def test_without_an_interval_there_is_none_of_any_level(self, client, put_link):
        put_link("few")
        row = {"link_id": "few", "slot_start": "2025-09-01T00:00:00Z", "count": 7}
        client.post("/v1/counts", json={"counts": [row]}).raise_for_status()
        (one,) = items(client, "/v1/links/few/forecast", level="0.5,0.95")
        assert (one["lower"], one["upper"], one["level"]) == (None, None, 0.5)
        assert one["intervals"] == [{"level": level, "lower": None, "upper": None} for level in (0.5, 0.95)]
