"""Forecasts while the database is unreachable and the newest count grows old."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.core.change_feed import ConnectionGuard
from app.core.clock import FeedClock
from app.core.errors import Unavailable
from app.forecasts.listing import ForecastList
from app.forecasts.options import ForecastOptions, latest_forecast
from app.forecasts.profile_fallback import LateFallback, ProfileFallback
from app.registry.queries import active_models
from tests.support.city import SLOTS, post, put_city, rows, small_city
from tests.support.databases import on_postgresql


@pytest.fixture
def without_refresh(monkeypatch):
    """Keep the service from reading all links' forecasts once a second."""
    monkeypatch.setattr("app.forecasts.cache.ForecastCache.refresh", lambda _cache: None)


@on_postgresql
def test_past_the_limit_the_profile_in_memory_is_returned(without_refresh, client, monkeypatch):
    city = small_city()
    put_city(client, city)
    ids = sorted(city.counts)
    post(client, rows(city, 0, 3 * SLOTS, ids[:1]))
    runtime = client.app.state
    cache, engine = runtime.forecast_cache, runtime.engine
    issued = cache.latest(ids[:1])[0][ids[0]].issued
    ConnectionGuard(engine).unreachable = True
    engine.dispose()

    with pytest.raises(OperationalError):  # not all links have been read, so there may be others
        cache.latest()
    with pytest.raises(OperationalError):
        cache.latest(ids)
    assert cache.latest(ids[:1])[1]
    assert latest_forecast(cache, ids[0], ForecastOptions())["stale"] is True

    now: Callable[[FeedClock], datetime] = FeedClock.now
    monkeypatch.setattr(FeedClock, "now", lambda clock: now(clock) + timedelta(minutes=91))
    entries, stale = cache.latest(ids[:1])
    listed = ForecastList(cache, entries, ForecastOptions(), stale=stale)
    (one,) = next(listed.parts())[0]["forecasts"]
    assert (one["method"], one["degraded_reason"]) == ("profile", "no count has come for more than 90 minutes")
    begin = datetime.fromtimestamp(issued.as_of, UTC) + timedelta(minutes=15 + 90)  # of the slot that contains now
    assert datetime.fromisoformat(one["slot_start"]) == begin
    profile = cache.forecaster.profiles.in_memory(issued.link, issued.as_of, 0)
    expected = profile.forecast(issued.link, int(begin.timestamp()), 0, None)
    assert one["expected_count"] == round(expected.expected[0], 3)
    assert listed.tag() != ForecastList(cache, entries, ForecastOptions(), stale=False).tag()

    monkeypatch.setattr(cache.forecaster, "profiles", ProfileFallback())  # nothing is in memory
    entries, stale = cache.latest(ids[:1])
    assert next(ForecastList(cache, entries, ForecastOptions(), stale=stale).parts())[0]["status"] == "failed"
    with pytest.raises(Unavailable, match="its profile is not in memory"):
        latest_forecast(cache, ids[0], ForecastOptions())


def test_without_the_database_the_profile_of_a_model_in_memory_answers(client, city):
    link_id = sorted(city.counts)[0]
    cache = client.app.state.forecast_cache
    issued = cache.look_up([link_id])[link_id].issued
    assert issued.model_version == 1
    forecaster = cache.forecaster
    with Session(client.app.state.engine) as session:
        active = active_models(session, [issued.link.link_key])
        forecaster.compute(session, [issued.link], {issued.link.link_key: issued.as_of}, active)  # loads the model
    assert forecaster.late_fallback_in_memory(issued).version == 1
    assert forecaster.late_fallback_in_memory(issued._replace(model_version=2)) is None
    last = forecaster.late_fallback_in_memory(issued._replace(model_version=0, method="last_count"))
    assert last == LateFallback(0, None, issued.expected[0])


def test_what_others_issued_is_taken_note_of_and_nothing_is_issued_for_it(client):
    city = small_city()
    put_city(client, city)
    ids = sorted(city.counts)
    post(client, rows(city, 0, SLOTS, ids[:2]))
    cache = client.app.state.forecast_cache
    assert cache.known() is None
    cache.refresh()
    known = cache.known()
    assert {link_id: entry.issued is not None for link_id, entry in known.items()} == dict.fromkeys(ids[:2], True) | {
        ids[2]: False
    }
    client.delete(f"/v1/links/{ids[2]}").raise_for_status()
    cache.refresh()
    assert sorted(cache.known()) == ids[:2]
    assert cache.known(ids).keys() == set(ids[:2])
