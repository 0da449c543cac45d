"""Forecasts beyond the issued horizons fade to the profile, by the link's local clock, and are never stored."""

import csv
import io
import itertools
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from app.core.change_feed import ConnectionGuard
from app.core.clock import FeedClock
from app.core.errors import Problem, Unavailable
from app.forecasts import day_ahead, profile_fallback
from app.forecasts.day_ahead import extended, longest_horizon
from app.forecasts.issued_forecast import HORIZONS, IssuedForecast
from app.forecasts.options import ForecastOptions, latest_forecast
from app.forecasts.profile_fallback import LinkProfile, ProfileFallback
from app.http.shedding import FROM_MEMORY
from app.links.queries import LinkInfo
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from tests.support.city import (
    PLAN,
    SLOTS,
    TRAINED_DAYS,
    post,
    put_city,
    register_models,
    rows,
    slot_start,
    small_city,
    train_city,
)
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.stored import MONDAY, put_counts, select_rows, utc

NOW = TRAINED_DAYS * SLOTS  # the first slot without a count
DAY = 96
BERLIN = ZoneInfo("Europe/Berlin")
WEEK = np.arange(7 * DAY, dtype=np.float64).reshape(7, DAY)  # each count names its weekday and slot


def link_of(minutes: int = 15, zone: str = "UTC") -> LinkInfo:
    return LinkInfo(1, "A", "A", zone, minutes, None)


def issued_forecast(link: LinkInfo, expected: list[float], as_of: int = MONDAY, **fields: object) -> IssuedForecast:
    """Return a forecast whose intervals reach 5 below and 10 above."""
    lower, upper = [max(0.0, one - 5.0) for one in expected], [one + 10.0 for one in expected]
    whole = IssuedForecast(link, as_of, 1, "KR_SML", None, 0, 0.9, expected, lower, upper, [None] * 4, 0)
    return whole._replace(**fields)


def forecasts_of(client, link_id: str, status: int = 200, **query: object):
    answer = client.get(f"/v1/links/{link_id}/forecast", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()["forecasts"] if status == 200 else answer.json()


def refused(problem) -> tuple[str, str, str]:
    (error,) = problem["errors"]
    return error["field"], error["value"], error["reason"]


class TestExtended:
    @pytest.mark.parametrize(
        "day", [date(2025, 3, 29), date(2025, 3, 30), date(2025, 10, 25), date(2025, 10, 26), date(2025, 7, 2)]
    )
    def test_the_profile_is_read_by_the_local_clock(self, day):
        link = link_of(zone="Europe/Berlin")
        begin = datetime(day.year, day.month, day.day, 17, 30, tzinfo=BERLIN).astimezone(UTC)
        as_of = int(begin.timestamp()) - 900
        local = [(begin + i * timedelta(minutes=15)).astimezone(BERLIN) for i in range(96)]
        expected = [float(WEEK[at.weekday(), at.hour * 4 + at.minute // 15]) for at in local]
        issued = issued_forecast(link, expected[:4], as_of)
        assert extended(issued, LinkProfile(Profile(WEEK), None), 96).expected == expected
        # Of a day with 92 or 100 slots, the 96 slots of the next 24 hours are forecast.
        assert local[-1].astimezone(UTC) - local[0].astimezone(UTC) == timedelta(hours=23, minutes=45)

    @pytest.mark.parametrize("minutes", [5, 15, 60])
    def test_a_deviation_from_the_profile_halves_in_90_minutes(self, minutes):
        link = link_of(minutes)
        n = 1440 // minutes
        profile = LinkProfile(Profile(np.full((7, n), 100.0)), None)
        whole = extended(issued_forecast(link, [100.0, 100.0, 100.0, 180.0]), profile, n)
        assert len(whole.expected) == len(whole.slots()) == n
        for h, expected in enumerate(whole.expected[4:], start=1):
            assert expected == pytest.approx(100.0 + 20.0 * 0.5 ** (h * minutes / 60), abs=6e-4)

    def test_a_public_holiday_is_a_sunday_where_the_network_knows_it(self):
        before = int(datetime(2025, 10, 2, tzinfo=UTC).timestamp())  # Thursday; the third is a holiday in Germany
        profile = LinkProfile(Profile(WEEK), None)
        for holidays, weekday in (("", 4), ("DE", 6)):
            own = profile._replace(holidays=holidays)
            assert own.at(link_of(), before, 192).tolist() == [*WEEK[3].tolist(), *WEEK[weekday].tolist()]

    def test_without_a_profile_the_last_forecast_is_repeated(self):
        issued = issued_forecast(link_of(), [1.0, 2.0, 3.0, 4.0], degraded_reason="few counts")
        whole = extended(issued, None, 96)
        assert whole.expected == [1.0, 2.0, 3.0, *[4.0] * 93]
        assert whole.upper == [11.0, 12.0, 13.0, *[14.0] * 93]
        assert whole.degraded_reason == "few counts"

    def test_a_day_is_the_most_and_the_issued_horizons_the_least(self):
        assert [longest_horizon(link_of(minutes)) for minutes in (1, 5, 15, 60, 480, 1440)] == [1440, 288, 96, 24, 4, 4]
        profile = LinkProfile(Profile(np.ones((7, 1))), None)
        assert extended(issued_forecast(link_of(1440), [1.0] * 4), profile, 96).expected == [1.0] * 4

    def test_intervals_reach_as_far_as_the_last_one_and_as_the_profiles_own(self):
        week = np.full((7, DAY), 20.0)
        week[:, 48:] = 200.0
        bands = Bands(0.9, np.array([[100.0]]), np.array([[-2.0, -50.0]]), np.array([[3.0, 60.0]]))
        profile = LinkProfile(Profile(week), bands)
        issued = issued_forecast(link_of(), [20.0] * 4)
        whole = extended(issued, profile, 96)
        assert (whole.lower[20], whole.upper[20]) == (15.0, 30.0)  # of the last issued one
        assert (whole.lower[60], whole.upper[60]) == (150.0, 260.0)  # of the profile
        at_80 = extended(issued._replace(level=0.8), profile, 96)
        assert 60 > at_80.upper[60] - 200.0 > 40  # bands of level 0.9 are narrower at 0.8
        by_profile = extended(issued._replace(method="profile"), profile, 96)
        assert (by_profile.lower[20], by_profile.upper[20]) == (18.0, 23.0)
        without = extended(issued._replace(lower=[None] * 4, upper=[None] * 4), profile, 96)
        assert set(without.lower) == set(without.upper) == {None}

    @given(
        st.lists(st.floats(0, 500), min_size=4, max_size=4),
        st.lists(st.floats(0, 500), min_size=24, max_size=24),
        st.floats(0, 300),
        st.floats(0, 300),
        st.booleans(),
        st.lists(st.integers(1, 9999), min_size=2, max_size=5, unique=True),
    )
    def test_the_expected_count_lies_inside_and_levels_nest(self, expected, of_day, below, above, with_bands, levels):
        link = link_of(60)
        lower = [round(max(0.0, one - below), 3) for one in expected]
        issued = issued_forecast(
            link,
            [round(one, 3) for one in expected],
            lower=lower,
            upper=[round(one + above, 3) for one in expected],
        )
        bands = Bands(0.9, np.array([[50.0]]), np.array([[-4.0, -30.0]]), np.array([[5.0, 40.0]]))
        profile = LinkProfile(Profile(np.tile(of_day, (7, 1))), bands if with_bands else None)
        ordered = tuple(sorted(level / 10_000 for level in levels))
        items = ForecastOptions(24, ordered).link_document(issued, profile, 0)["forecasts"]
        assert [one["expected_count"] for one in items[:4]] == issued.expected
        for one in items:
            ends = [(interval["lower"], interval["upper"]) for interval in one["intervals"]]
            assert (one["lower"], one["upper"]) == ends[0]
            for inner, outer in itertools.pairwise(ends):
                assert 0.0 <= outer[0] <= inner[0] <= one["expected_count"] <= inner[1] <= outer[1]


class TestLink:
    @pytest.mark.parametrize(("minutes", "most"), [(5, 288), (15, 96), (60, 24), (1440, 4)])
    @on_sqlite
    def test_the_slots_of_a_day_are_the_most(self, client, put_link, minutes, most):
        put_link("A", slot_minutes=minutes)
        put_counts(client, "A", {MONDAY + i * 60 * minutes: 40 for i in range(4 * 1440 // minutes)})
        found = forecasts_of(client, "A", horizon=most)
        assert [one["horizon"] for one in found] == list(range(1, most + 1))
        starts = [datetime.fromisoformat(one["slot_start"]) for one in found]
        assert {after - before for before, after in itertools.pairwise(starts)} == {timedelta(minutes=minutes)}
        problem = forecasts_of(client, "A", 422, horizon=most + 1)
        assert refused(problem) == ("horizon", str(most + 1), f"must be at most {most} for slots of {minutes} minutes")
        assert forecasts_of(client, "A", 422, horizon=0)
        assert refused(forecasts_of(client, "A", 422, horizon=1441))[2] == "must be less than or equal to 1440"

    def test_the_first_four_are_those_that_are_stored(self, client, city):
        for link_id in city.counts:
            near = forecasts_of(client, link_id, horizon=4)
            whole = forecasts_of(client, link_id, horizon=96)
            assert whole[:4] == near
            assert [one["slot_start"] for one in whole] == [slot_start(city, NOW + h) for h in range(96)]
            assert {one["method"] for one in whole} == {"KR_SML"}
            assert all(0 <= one["lower"] <= one["expected_count"] <= one["upper"] for one in whole)
            assert all(one["flow"] == pytest.approx(4 * one["expected_count"], abs=2e-3) for one in whole)
        (n,) = select_rows(client.app.state.engine, "SELECT max(horizon) FROM forecasts")
        assert n == (4,)

    @on_sqlite
    def test_far_ahead_it_is_the_models_profile(self, client, city):
        link_id = next(iter(city.counts))
        whole = forecasts_of(client, link_id, horizon=96)
        forecaster = client.app.state.forecast_cache.forecaster
        entry = client.app.state.forecast_cache.look_up([link_id])[link_id]
        loaded = forecaster.models.in_memory(entry.key.link.link_key, 1)
        usual = LinkProfile(loaded.model.profile, None).at(entry.key.link, entry.issued.slots()[0], 96)
        deviation = np.mean([whole[h]["expected_count"] - usual[h] for h in range(4)])
        for h in (4, 9, 95):
            faded = deviation * 0.5 ** ((h - 3) * 15 / 60)
            assert whole[h]["expected_count"] == pytest.approx(max(0.0, usual[h] + faded), abs=2e-3)
        assert forecaster.profiles.in_memory(entry.key.link, entry.issued.as_of, 1).bands is not None

    @pytest.mark.parametrize("algorithm", ["KR", "KR_PCA", "MLKR"])
    @on_sqlite
    def test_every_algorithm_of_a_link_serves_a_day(self, client, city, tmp_path, algorithm):
        link_id = next(iter(city.counts))
        only = replace(city, counts={link_id: city.counts[link_id]})
        train_city(only, tmp_path / "again", replace(PLAN, n_neighbors=4, algorithm=algorithm))
        register_models(client, tmp_path / "again", [link_id])
        whole = forecasts_of(client, link_id, horizon=96)
        assert {one["method"] for one in whole} == {algorithm}
        assert whole[:4] == forecasts_of(client, link_id, horizon=4)
        assert len(whole) == 96

    def test_without_a_model_it_is_the_profile(self, client):
        city = small_city()
        put_city(client, city)
        link_id = next(iter(city.counts))
        counts = [
            {"link_id": link_id, "slot_start": slot_start(city, i), "count": i % SLOTS} for i in range(10 * SLOTS)
        ]
        post(client, counts)
        whole = forecasts_of(client, link_id, horizon=96)
        assert whole[:4] == forecasts_of(client, link_id, horizon=4)
        assert {one["method"] for one in whole} == {"profile"}
        assert [one["expected_count"] for one in whole[1:95]] == pytest.approx(range(1, 95), abs=2e-3)

    @on_sqlite
    def test_with_few_counts_the_last_one_is_repeated(self, client, put_link):
        put_link("A")
        put_counts(client, "A", {MONDAY + i * 900: 10 + i for i in range(30)})
        whole = forecasts_of(client, "A", horizon=96)
        assert {(one["method"], one["expected_count"]) for one in whole} == {("last_count", 39.0)}
        assert len({one["degraded_reason"] for one in whole}) == 1
        assert "too few counts" in whole[95]["degraded_reason"] or "no trained model" in whole[95]["degraded_reason"]
        assert whole[95]["upper"] == whole[3]["upper"]

    @on_sqlite
    def test_a_silent_feed_is_forecast_a_day_from_now_on_by_the_profile(self, client, city):
        silent, live, _ = sorted(city.counts)
        post(client, rows(city, NOW, NOW + 30, [live]))
        whole = forecasts_of(client, silent, horizon=96)
        assert whole[:4] == forecasts_of(client, silent, horizon=4)
        assert [one["slot_start"] for one in whole] == [slot_start(city, NOW + 30 + h) for h in range(96)]
        assert {one["method"] for one in whole} == {"profile"}
        assert {one["degraded_reason"] for one in whole} == {"no count has come for more than 90 minutes"}
        entry = client.app.state.forecast_cache.look_up([silent])[silent]
        profile, first = entry.fallback.profile, int(datetime.fromisoformat(whole[0]["slot_start"]).timestamp())
        usual = profile.at(entry.key.link, first, 96)
        assert [one["expected_count"] for one in whole] == pytest.approx(usual.tolist(), abs=2e-3)
        assert all(one["lower"] <= one["expected_count"] <= one["upper"] for one in whole)

    @on_sqlite
    def test_a_silent_feed_without_a_profile_repeats_the_last_count(self, client):
        city = small_city()
        put_city(client, city)
        silent, live, _ = sorted(city.counts)
        post(client, rows(city, 0, SLOTS, [silent]))
        post(client, rows(city, SLOTS, SLOTS + 40, [live]))
        whole = forecasts_of(client, silent, horizon=96, level="0.5,0.9")
        assert {(one["method"], one["upper"]) for one in whole} == {("last_count", None)}
        assert {one["expected_count"] for one in whole} == {float(city.counts[silent][SLOTS - 1])}
        assert whole[95]["intervals"] == [{"level": level, "lower": None, "upper": None} for level in (0.5, 0.9)]

    @on_sqlite
    def test_as_of_a_past_slot_no_later_count_is_used(self, client, put_link):
        put_link("A")
        put_counts(client, "A", {MONDAY + i * 900: 40 + i % DAY for i in range(14 * DAY)})
        query = {"as_of": utc(MONDAY + (14 * DAY - 1) * 900), "horizon": 96, "level": "0.5,0.9"}
        then = forecasts_of(client, "A", **query)
        put_counts(client, "A", {MONDAY + i * 900: 900 for i in range(14 * DAY, 15 * DAY)})
        client.app.state.forecast_cache.forecaster.profiles.__init__()  # as in a process that was just started
        again = forecasts_of(client, "A", **query)
        for one, other in zip(then, again, strict=True):
            assert {**one, "issued_at": 0, "data_age_seconds": 0} == {**other, "issued_at": 0, "data_age_seconds": 0}
        assert len(again) == 96
        assert forecasts_of(client, "A", 422, as_of=query["as_of"], horizon=97)

    @on_sqlite
    def test_it_is_explained_as_the_issued_ones_are(self, client, city):
        link_id = next(iter(city.counts))
        path = f"/v1/links/{link_id}/forecast"
        near = client.get(path, params={"explain": True, "horizon": 4}).json()
        whole = client.get(path, params={"explain": True, "horizon": 96}).json()
        assert whole["explanation"] == near["explanation"] is not None
        assert whole["forecasts"] == forecasts_of(client, link_id, horizon=96)
        assert forecasts_of(client, link_id, 422, explain=True, horizon=97)

    @on_sqlite
    def test_as_csv_and_by_head(self, client, city):
        link_id = next(iter(city.counts))
        path = f"/v1/links/{link_id}/forecast?horizon=96"
        answer = client.get(path, headers={"Accept": "text/csv"})
        found = list(csv.DictReader(io.StringIO(answer.text)))
        assert [float(row["expected_count"]) for row in found] == [
            one["expected_count"] for one in forecasts_of(client, link_id, horizon=96)
        ]
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b"")

    def test_a_link_that_does_not_exist_or_has_no_counts(self, client, put_link):
        put_link("new")
        assert "does not exist" in forecasts_of(client, "nowhere", 404, horizon=96)["detail"]
        assert "no counts yet" in forecasts_of(client, "new", 409, horizon=96)["detail"]
        assert "must be at most 96" in forecasts_of(client, "new", 422, horizon=97)["detail"]


class TestNetwork:
    def listed(self, client, status: int = 200, **query: object):
        answer = client.get("/v1/forecasts", params=query)
        assert answer.status_code == status, answer.text
        return answer

    def test_each_link_has_what_it_has_alone(self, client, city, put_link):
        put_link("z-none")
        answer = self.listed(client, horizon=96, level="0.5,0.95").json()
        assert answer["stale"] is False
        links = {link["link_id"]: link for link in answer["links"]}
        assert list(links) == [*sorted(city.counts), "z-none"]
        assert links.pop("z-none") == {"link_id": "z-none", "status": "no_counts", "forecasts": []}
        for link_id, link in links.items():
            assert link["status"] == "ok"
            assert link["forecasts"] == forecasts_of(client, link_id, horizon=96, level="0.5,0.95")

    @on_sqlite
    def test_each_link_has_at_most_its_own_day(self, client, put_link):
        for link_id, minutes in (("fast", 5), ("hourly", 60)):
            put_link(link_id, slot_minutes=minutes)
            put_counts(client, link_id, {MONDAY + i * 60 * minutes: 40 for i in range(4 * 1440 // minutes)})
        lengths = {link["link_id"]: len(link["forecasts"]) for link in self.listed(client, horizon=288).json()["links"]}
        assert lengths == {"fast": 288, "hourly": 24}
        assert refused(self.listed(client, 422, horizon=289).json()) == (
            "horizon",
            "289",
            "must be at most 288 for slots of 5 minutes",
        )
        assert refused(self.listed(client, 422, horizon=25, links="hourly").json())[2] == (
            "must be at most 24 for slots of 60 minutes"
        )
        assert self.listed(client, horizon=1440, links="nowhere").json()["links"] == []

    @on_sqlite
    def test_csv_and_geojson_hold_what_json_holds(self, client, city, put_link):
        put_link("z-none")
        query = {"horizon": 96, "level": "0.5,0.95"}
        links = self.listed(client, **query).json()["links"]
        text = client.get("/v1/forecasts", params=query, headers={"Accept": "text/csv"}).text
        found = list(csv.DictReader(io.StringIO(text)))
        assert list(found[0])[-4:] == ["lower_0.5", "upper_0.5", "lower_0.95", "upper_0.95"]
        expected = [(link, item) for link in links for item in link["forecasts"] or [None]]
        for row, (link, item) in zip(found, expected, strict=True):
            assert (row["link_id"], row["status"]) == (link["link_id"], link["status"])
            if item is None:
                assert {value for name, value in row.items() if name not in ("link_id", "status")} == {""}
                continue
            assert float(row["expected_count"]) == item["expected_count"]
            for interval in item["intervals"]:
                assert float(row[f"lower_{interval['level']}"]) == interval["lower"]
                assert float(row[f"upper_{interval['level']}"]) == interval["upper"]
        geojson = client.get("/v1/forecasts", params=query, headers={"Accept": "application/geo+json"}).json()
        for feature, link in zip(geojson["features"], links, strict=True):
            assert feature["properties"]["forecasts"] == link["forecasts"]
            if link["forecasts"]:
                assert feature["properties"]["intervals"] == link["forecasts"][0]["intervals"]
            else:
                assert feature["properties"]["expected_count"] is None

    @on_sqlite
    def test_the_tag_is_that_of_horizons_and_levels(self, client, city):
        queries = [{"horizon": 4}, {"horizon": 96}, {"horizon": 95}, {"horizon": 96, "level": "0.9"}]
        tags = [self.listed(client, **query).headers["etag"] for query in queries]
        assert len(set(tags)) == len(tags)
        for query, tag in zip(queries, tags, strict=True):
            known = {"If-None-Match": tag}
            assert client.get("/v1/forecasts", params=query, headers=known).status_code == 304
            assert client.head("/v1/forecasts", params=query).headers["etag"] == tag
        post(client, rows(city, NOW, NOW + 1))
        known = {"If-None-Match": tags[1]}
        assert client.get("/v1/forecasts", params=queries[1], headers=known).status_code == 200

    @on_sqlite
    def test_links_are_written_part_by_part(self, client, city, monkeypatch):
        whole = self.listed(client, horizon=96).content
        monkeypatch.setattr("app.forecasts.listing.ITEMS_A_PART", 100)  # one link in each
        assert self.listed(client, horizon=96).content == whole
        assert "content-length" not in self.listed(client, horizon=96).headers

    @on_sqlite
    def test_a_link_whose_profile_fails_leaves_the_others_theirs(self, client, city, monkeypatch):
        bad, *others = sorted(city.counts)
        self.listed(client, horizon=4)

        def learn(series, own, holidays):
            if series.link_id == bad:
                raise ZeroDivisionError
            return learnt(series, own, holidays)

        learnt = profile_fallback.learn_profile
        monkeypatch.setattr(profile_fallback, "learn_profile", learn)
        links = {link["link_id"]: link for link in self.listed(client, horizon=96).json()["links"]}
        assert links[bad] == {"link_id": bad, "status": "failed", "forecasts": []}
        assert [len(links[other]["forecasts"]) for other in others] == [96, 96]
        assert forecasts_of(client, bad, 503, horizon=96)["type"] == "/problems/forecast-failed"
        assert len(forecasts_of(client, bad, horizon=4)) == 4

    @on_sqlite
    def test_profiles_of_many_links_are_learnt_in_as_many_queries_as_of_one(self, client, city, monkeypatch):
        cache = client.app.state.forecast_cache
        self.listed(client, horizon=4)
        reads = []
        look_up = ProfileFallback.look_up

        def noted(profiles, session, requests):
            reads.append(len(requests))
            return look_up(profiles, session, requests)

        monkeypatch.setattr(ProfileFallback, "look_up", noted)
        self.listed(client, horizon=96)
        self.listed(client, horizon=96)
        assert reads == [len(city.counts)]
        assert len(cache.forecaster.profiles) == len(city.counts)


class TestUnreachableDatabase:
    @pytest.fixture
    def cache(self, client, city):
        """Return the cache of a service whose database is unreachable, after all forecasts were read."""
        cache = client.app.state.forecast_cache
        cache.look_up()
        cache.refresh()
        return cache

    def cut(self, cache) -> None:
        ConnectionGuard(cache.engine).unreachable = True
        cache.engine.dispose()

    @on_postgresql
    def test_the_profile_in_memory_is_used(self, client, city, cache):
        link_id = next(iter(city.counts))
        whole = forecasts_of(client, link_id, horizon=96)
        self.cut(cache)
        document = latest_forecast(cache, link_id, ForecastOptions(96))
        assert document["stale"] is True
        assert [one["expected_count"] for one in document["forecasts"]] == [one["expected_count"] for one in whole]

    @on_postgresql
    def test_without_it_the_issued_horizons_are_all(self, client, city, cache, monkeypatch):
        link_id = next(iter(city.counts))
        near = forecasts_of(client, link_id, horizon=4)
        monkeypatch.setattr(cache.forecaster, "profiles", ProfileFallback())
        monkeypatch.setattr(cache.forecaster.models, "in_memory", lambda link_key, version: None)
        self.cut(cache)
        document = latest_forecast(cache, link_id, ForecastOptions(4, (0.5,)))
        assert [one["expected_count"] for one in document["forecasts"]] == [one["expected_count"] for one in near]
        expected = (
            f"no forecast of link '{link_id}' beyond horizon=4: the database is unreachable and its profile is not"
        )
        with pytest.raises(Unavailable, match=expected):
            latest_forecast(cache, link_id, ForecastOptions(5))
        answer = client.get("/v1/forecasts?horizon=96")
        assert {link["status"] for link in answer.json()["links"]} == {"failed"}
        assert (answer.json()["stale"], answer.headers["X-Flowcast-Stale"]) == (True, "true")

    @on_sqlite
    def test_a_database_that_fails_while_the_profile_is_read(self, client, city, cache, monkeypatch):
        link_id = next(iter(city.counts))
        whole = forecasts_of(client, link_id, horizon=96)
        monkeypatch.setattr(cache.forecaster, "profiles", ProfileFallback())

        def fail(engine):
            raise OperationalError("SELECT", {}, Exception("gone"))

        monkeypatch.setattr(day_ahead, "reading", fail)
        # The profile of the model in memory has no bands.
        answer = client.get(f"/v1/links/{link_id}/forecast?horizon=96")
        assert (answer.json()["stale"], answer.headers["X-Flowcast-Stale"]) == (True, "true")
        assert [one["expected_count"] for one in answer.json()["forecasts"]] == [one["expected_count"] for one in whole]
        monkeypatch.setattr(cache.forecaster.models, "in_memory", lambda link_key, version: None)
        problem = forecasts_of(client, link_id, 503, horizon=5)
        assert problem["type"] == "/problems/unavailable"
        assert "beyond horizon=4" in problem["detail"]

    @on_postgresql
    def test_a_silent_feed_is_the_profiles_in_memory(self, client, city, cache, monkeypatch):
        link_id = next(iter(city.counts))
        forecasts_of(client, link_id, horizon=96)
        self.cut(cache)
        now = FeedClock.now
        monkeypatch.setattr(FeedClock, "now", lambda clock: now(clock) + timedelta(minutes=91))
        document = latest_forecast(cache, link_id, ForecastOptions(96))
        assert {one["method"] for one in document["forecasts"]} == {"profile"}
        assert len(document["forecasts"]) == 96
        monkeypatch.setattr(cache.forecaster, "profiles", ProfileFallback())
        monkeypatch.setattr(cache.forecaster.models, "in_memory", lambda link_key, version: None)
        with pytest.raises(Problem, match="its profile is not in memory"):
            latest_forecast(cache, link_id, ForecastOptions(96))


def test_only_issued_horizons_are_read_without_a_thread():
    assert set(FROM_MEMORY) == {b"", *(f"horizon={n}".encode() for n in range(1, HORIZONS + 1))}
