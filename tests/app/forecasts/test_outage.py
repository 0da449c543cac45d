"""What is said while the database is away and the newest count grows old."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.core.change_feed import ConnectionGuard
from app.core.clock import FeedClock
from app.core.errors import Unavailable
from app.forecasts.late_forecasts import Fallback, fallback_in_memory
from app.forecasts.profile_fallback import ProfileFallback
from app.forecasts.responses import ForecastList, link_forecast
from tests.support.city import SLOTS, post, put_city, rows, small_city
from tests.support.databases import on_postgresql


@on_postgresql
def test_past_the_limit_the_profile_in_memory_is_returned(client, monkeypatch):
    city = small_city()
    put_city(client, city)
    ids = sorted(city.counts)
    post(client, rows(city, 0, 3 * SLOTS, ids[:1]))
    runtime = client.app.state
    cache, engine = runtime.forecast_cache, runtime.engine
    said = cache.latest(ids[:1]).entries[ids[0]].issued
    ConnectionGuard(engine).unreachable = True
    engine.dispose()

    with pytest.raises(OperationalError):  # nobody looked at all links yet, so there may be more than these
        cache.latest()
    with pytest.raises(OperationalError):
        cache.latest(ids)
    found = cache.latest(ids[:1])
    assert found.stale
    assert found.headers == {"X-Flowcast-Stale": "true"}
    assert link_forecast(cache, found.entries[ids[0]], 1, stale=found.stale)["stale"] is True

    now: Callable[[FeedClock], datetime] = FeedClock.now
    monkeypatch.setattr(FeedClock, "now", lambda clock: now(clock) + timedelta(minutes=91))
    found = cache.latest(ids[:1])
    listed = ForecastList(cache, found, 1)
    (one,) = listed.document()["links"][0]["forecasts"]
    assert (one["method"], one["degraded_reason"]) == ("profile", "no count has come for more than 90 minutes")
    begin = datetime.fromtimestamp(said.as_of, UTC) + timedelta(minutes=15 + 90)  # of the slot that contains now
    assert datetime.fromisoformat(one["slot_start"]) == begin
    profile = cache.forecaster.usual.in_memory(said.link, said.as_of, 0)
    assert one["expected_count"] == round(profile.at(said.link, int(begin.timestamp()), 1).expected[0], 3)
    assert listed.tag() != ForecastList(cache, found._replace(stale=False), 1).tag()

    monkeypatch.setattr(cache.forecaster, "usual", ProfileFallback())  # nothing is in memory
    found = cache.latest(ids[:1])
    assert ForecastList(cache, found, 1).document()["links"][0]["status"] == "failed"
    with pytest.raises(Unavailable, match="its profile is not in memory"):
        link_forecast(cache, found.entries[ids[0]], 1, stale=found.stale)


def test_without_the_database_the_profile_of_a_model_in_memory_answers(client, city):
    link_id = sorted(city.counts)[0]
    cache = client.app.state.forecast_cache
    said = cache.look_up([link_id])[link_id].issued
    assert said.model_version == 1
    with Session(client.app.state.engine) as session:
        cache.forecaster.compute(session, [said.link], {said.link.link_key: said.as_of})  # loads the model
    assert fallback_in_memory(cache.forecaster, said).version == 1
    assert fallback_in_memory(cache.forecaster, said._replace(model_version=2)) is None
    last = fallback_in_memory(cache.forecaster, said._replace(model_version=0, method="last_count"))
    assert last == Fallback(0, None, said.expected[0])


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
