"""Forecasts without a trained model: from the counts that are stored, and only from those."""

from datetime import datetime

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.core.database import reading
from app.core.slots import SlotGrid, zone_named
from app.counts.queries import newest_slots
from app.counts.series import LinkSeries
from app.forecasts import profile_fallback
from app.forecasts.issued_forecast import ForecastRequest
from app.forecasts.profile_fallback import LinkProfile, ProfileFallback, learn_profile
from app.links.queries import LinkInfo, all_links
from app.main import create_app
from app.registry.queries import active_models
from tests.support.databases import on_sqlite
from tests.support.statements import observed_statements
from tests.support.stored import MONDAY, SLOT, put_counts, utc
from tests.support.waiting import wait_until

DAY = 96


def counts(first: int, last: int, level: int = 40) -> dict[int, int]:
    """Return a count for every slot in a range, counted from Monday; all days are equal."""
    return {MONDAY + i * SLOT: level + i % DAY for i in range(first, last)}


def post_count(client, slot: int, count: int) -> None:
    row = {"link_id": "A", "slot_start": utc(slot), "count": count}
    answer = client.post("/v1/counts", json={"counts": [row]})
    assert answer.json()["forecasts_issued"] == 1, answer.text


def nearest(client, status: int = 200, link_id: str = "A", **query):
    answer = client.get(f"/v1/links/{link_id}/forecast", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()["forecasts"][0] if status == 200 else answer.json()


@pytest.fixture(autouse=True)
def link(put_link):
    return put_link("A", zone="UTC")


def test_as_of_a_gap_the_last_count_before_it_is_the_forecast(client):
    put_counts(client, "A", counts(0, 4) | counts(5, 8))
    one = nearest(client, as_of=utc(MONDAY + 4 * SLOT))
    assert (one["method"], one["expected_count"]) == ("last_count", 43.0)


def test_as_of_a_slot_before_all_counts_there_is_no_forecast_yet(client):
    put_counts(client, "A", counts(0, 4))
    assert "no count in the 28 days" in nearest(client, 409, as_of=utc(MONDAY - SLOT))["detail"]


def test_a_past_that_comes_in_later_brings_the_profile_at_once(client):
    post_count(client, MONDAY + 10 * DAY * SLOT, 7)
    assert nearest(client)["method"] == "last_count"
    put_counts(client, "A", counts(0, 10 * DAY))
    post_count(client, MONDAY + (10 * DAY + 1) * SLOT, 7)
    assert nearest(client)["method"] == "profile"


def test_as_of_uses_no_count_after_it_whatever_was_read_before(client):
    start = 14 * DAY
    put_counts(client, "A", counts(0, start + 1))
    then = nearest(client, as_of=utc(MONDAY + start * SLOT))
    put_counts(client, "A", counts(start + 1, start + 12, level=900))
    client.app.state.forecast_cache.forecaster.profiles.__init__()  # as in a process that was just started
    nearest(client, as_of=utc(MONDAY + (start + 11) * SLOT))  # learns from the whole morning
    again = nearest(client, as_of=utc(MONDAY + start * SLOT))
    assert again["method"] == "profile"
    assert {**again, "issued_at": 0, "data_age_seconds": 0} == {**then, "issued_at": 0, "data_age_seconds": 0}


class Reads:
    """The number of times that counts were read from a database."""

    n = 0

    def observe(self, _connection, statement, _parameters) -> None:
        self.n += "counts.quality" in statement


@pytest.fixture
def reads():
    counted = Reads()
    with observed_statements(counted.observe):
        yield counted


def post_slot(client, slot: int, link_ids: str) -> int:
    """Post a count of each link and return how many forecasts were issued."""
    rows = [{"link_id": link_id, "slot_start": utc(slot), "count": 40} for link_id in link_ids]
    return client.post("/v1/counts", json={"counts": rows}).json()["forecasts_issued"]


class TestManyLinks:
    """Links without a model, whose profiles a process does not know when it starts."""

    @pytest.fixture
    def engine(self, client, put_link):
        for link_id in "BCDE":
            put_link(link_id, zone="UTC")
        for link_id in "ABCDE":
            put_counts(client, link_id, counts(0, 14 * DAY))
        return client.app.state.engine

    @on_sqlite
    def test_what_was_learnt_ahead_is_not_learnt_for_the_first_counts(self, engine, reads):
        profiles = ProfileFallback()
        profiles.learn_ahead(engine, lambda: False)
        before = reads.n
        with reading(engine) as session:
            assert len(profiles) == len(all_links(session)) == 5
            for link in all_links(session):
                assert isinstance(
                    profiles.of(session, ForecastRequest(link, MONDAY + (14 * DAY - 1) * SLOT)), LinkProfile
                )
        assert reads.n == before

    @on_sqlite
    def test_a_process_learns_them_when_it_starts(self, engine, settings):
        another = create_app(settings)
        with TestClient(another):
            wait_until(lambda: len(another.state.forecast_cache.forecaster.profiles) == 5)

    @on_sqlite
    def test_learning_ahead_ends_with_the_service(self, engine, monkeypatch):
        monkeypatch.setattr("app.forecasts.profile_fallback.LINKS_AT_ONCE", 2)
        profiles = ProfileFallback()
        profiles.learn_ahead(engine, lambda: len(profiles) == 2)
        assert len(profiles) == 2

    @on_sqlite
    def test_links_renew_their_profiles_at_different_times_of_the_day(self, engine, reads):
        profiles, renewed = ProfileFallback(), []
        with reading(engine) as session:
            links = all_links(session)
            assert not active_models(session)
            for slot in range(13 * DAY, 14 * DAY + 1):
                before = reads.n
                for link in links:
                    profiles.of(session, ForecastRequest(link, MONDAY + slot * SLOT))
                renewed.append(reads.n - before)
        assert renewed[0] == 5
        assert sorted(renewed[1:])[-6:] == [0, 1, 1, 1, 1, 1]

    def test_many_links_without_models_need_as_many_queries_as_one(self, client, engine, reads):
        profiles = client.app.state.forecast_cache.forecaster.profiles
        queries = []
        for i, link_ids in enumerate(("A", "ABCDE")):
            profiles.__init__()  # as in a process that was just started
            before = reads.n
            assert post_slot(client, MONDAY + (14 * DAY + i) * SLOT, link_ids) == len(link_ids)
            assert len(profiles) == len(link_ids)
            queries.append(reads.n - before)
        assert queries[0] == queries[1]

    @on_sqlite
    def test_links_with_too_few_counts_need_as_many_queries_as_one(self, client, put_link, reads):
        for link_id in "BCDE":
            put_link(link_id, zone="UTC")
        put_counts(client, "A", counts(0, 4))
        queries = []
        for i, link_ids in enumerate(("A", "ABCDE")):
            before = reads.n
            assert post_slot(client, MONDAY + (4 + i) * SLOT, link_ids) == len(link_ids)
            queries.append(reads.n - before)
        assert queries[0] == queries[1]
        assert nearest(client, link_id="E")["method"] == "last_count"

    def test_what_is_learnt_together_is_the_same_as_alone(self, client, engine, put_link):
        put_link("F", zone="Europe/Berlin")
        put_counts(client, "F", counts(0, 10 * DAY + 7) | counts(11 * DAY, 12 * DAY))
        with reading(engine) as session:
            newest = newest_slots(session)
            requests = [ForecastRequest(link, newest[link.link_key]) for link in all_links(session)]
            alone, together = ProfileFallback(), ProfileFallback()
            known = together.look_up(session, requests)
            for one in requests:
                expected, found = alone.of(session, one), together.learn(one, known[one.link.link_key])
                np.testing.assert_array_equal(found.profile.expected_counts, expected.profile.expected_counts)
                np.testing.assert_array_equal(found.bands.below, expected.bands.below)

    @on_sqlite
    def test_a_link_whose_profile_fails_leaves_the_others_their_forecasts(self, client, engine, monkeypatch):
        def learn(series, profile, holidays):
            if series.link_id == "C":
                raise ZeroDivisionError
            return learnt(series, profile, holidays)

        learnt = profile_fallback.learn_profile
        monkeypatch.setattr(profile_fallback, "learn_profile", learn)
        client.app.state.forecast_cache.forecaster.profiles.__init__()
        assert post_slot(client, MONDAY + 14 * DAY * SLOT, "ABCDE") == 4


def test_public_holidays_of_a_region_are_sundays():
    zone, grid = zone_named("Europe/Berlin"), SlotGrid(15)
    first = grid.containing(datetime(2025, 9, 8, tzinfo=zone))
    days = np.arange(27 * DAY) // DAY % 7
    flow = np.where(days == 6, 20.0, 100.0)
    flow[25 * DAY : 26 * DAY] = 20.0  # Friday, 3 October
    series = LinkSeries("A", grid, zone, first, flow, np.zeros(27 * DAY, dtype=bool))
    link = LinkInfo(1, "A", "A", "Europe/Berlin", 15, None)
    holiday = int(datetime(2026, 5, 1, 12, tzinfo=zone).timestamp())  # another Friday
    plain, german = (learn_profile(series, None, region) for region in ("", "DE"))
    assert german.holidays == "DE"
    np.testing.assert_allclose(german.at(link, holiday, 4), 20.0)
    assert (plain.at(link, holiday, 4) > 60.0).all()
