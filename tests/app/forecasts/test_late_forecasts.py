"""A link whose counts stopped coming is forecast from now on, by its profile."""

from datetime import datetime, timedelta

from tests.support.city import SLOTS, post, put_city, rows, slot_start, small_city
from tests.support.databases import on_sqlite

NOW = 15 * SLOTS  # slots that the links' feed has had
LATER = NOW + 30  # seven and a half hours


def forecast(client, link_id: str, query: str = "?horizon=4"):
    answer = client.get(f"/v1/links/{link_id}/forecast{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()["forecasts"]


def starts(city, first: int) -> list[str]:
    return [slot_start(city, first + h) for h in range(4)]


def test_the_slots_from_now_on_are_forecast_and_none_of_the_past(client, city):
    silent, live, _ = sorted(city.counts)
    before = forecast(client, silent)
    assert [one["slot_start"] for one in before] == starts(city, NOW)
    post(client, rows(city, NOW, LATER, [live]))  # on the feed clock this moves now

    late = forecast(client, silent)
    assert [one["slot_start"] for one in late] == starts(city, LATER)
    assert [one["slot_start"] for one in forecast(client, live)] == starts(city, LATER)
    assert [one["horizon"] for one in late] == [1, 2, 3, 4]
    assert {one["method"] for one in late} == {"profile"}
    assert {one["degraded_reason"] for one in late} == {"no count has come for more than 90 minutes"}
    assert {one["as_of_slot"] for one in late} == {slot_start(city, NOW - 1)}
    assert {one["data_age_seconds"] for one in late} == {30 * 900}
    explained = client.get(f"/v1/links/{silent}/forecast?horizon=4&explain=true").json()
    # A forecast from now on is computed again whenever the link's entry was read again.
    assert [one | {"issued_at": ""} for one in explained["forecasts"]] == [one | {"issued_at": ""} for one in late]
    assert explained["explanation"] is None


@on_sqlite
def test_the_profile_is_that_of_the_slots_forecast(client):
    city = small_city()
    put_city(client, city)
    silent, live, _ = sorted(city.counts)
    # The count of a slot is its number in the day, so that the profile is known.
    counts = [{"link_id": silent, "slot_start": slot_start(city, i), "count": i % SLOTS} for i in range(10 * SLOTS)]
    post(client, counts)
    post(client, rows(city, 10 * SLOTS, 12 * SLOTS + 40, [live]))
    assert [one["expected_count"] for one in forecast(client, silent)] == [40.0, 41.0, 42.0, 43.0]


@on_sqlite
def test_the_answer_moves_along_with_now_though_it_is_cached(client, city):
    silent, live, _ = sorted(city.counts)
    post(client, rows(city, NOW, LATER, [live]))
    assert forecast(client, silent) == forecast(client, silent)
    everything = client.get("/v1/forecasts?horizon=4")
    tag = {"If-None-Match": everything.headers["etag"]}
    assert client.get("/v1/forecasts?horizon=4", headers=tag).status_code == 304

    post(client, rows(city, LATER, LATER + 1, [live]))
    assert [one["slot_start"] for one in forecast(client, silent)] == starts(city, LATER + 1)
    answer = client.get("/v1/forecasts?horizon=4", headers=tag)
    assert answer.status_code == 200
    assert answer.json()["stale"] is False  # that is about the database alone
    for one in answer.json()["links"]:
        assert [forecast["slot_start"] for forecast in one["forecasts"]] == starts(city, LATER + 1)
    assert {one["link_id"]: one["status"] for one in answer.json()["links"]}[silent] == "degraded"


@on_sqlite
def test_a_cached_answer_moves_within_a_process_without_the_database(client, city):
    silent, live, _ = sorted(city.counts)
    post(client, rows(city, NOW, LATER, [live]))
    cache = client.app.state.forecast_cache
    entry = cache.look_up([silent])[silent]
    now = cache.now()
    first = cache.current(entry, now)[0]
    assert cache.current(entry, now + 899)[0] is first
    assert cache.current(entry, now + 900)[0].slots()[0] == first.slots()[0] + 900
    assert cache.current(entry, now)[0].slots()[0] == first.slots()[0]  # a clock that was set back


def test_nothing_of_it_is_stored_or_scored(client, city):
    silent, live, _ = sorted(city.counts)
    stored = client.get(f"/v1/links/{silent}/forecasts").json()["forecasts"]
    post(client, rows(city, NOW, LATER, [live]))
    accuracy = client.get(f"/v1/links/{silent}/accuracy").json()
    forecast(client, silent)
    assert client.get(f"/v1/links/{silent}/forecasts").json()["forecasts"] == stored
    after = client.get(f"/v1/links/{silent}/accuracy").json()
    assert (after["n_used"], after["rmse"]) == (accuracy["n_used"], accuracy["rmse"])

    post(client, rows(city, LATER, LATER + 1, [silent]))  # the feed is back
    (one,) = forecast(client, silent, "")
    assert one["slot_start"] == slot_start(city, LATER + 1)
    issued = {one["slot_start"] for one in client.get(f"/v1/links/{silent}/forecasts").json()["forecasts"]}
    begin = datetime.fromisoformat(slot_start(city, LATER))
    assert begin + timedelta(minutes=15) in {datetime.fromisoformat(one) for one in issued}
    assert begin not in {datetime.fromisoformat(one) for one in issued}


@on_sqlite
def test_without_a_profile_the_last_count_answers_without_an_interval(client):
    city = small_city()
    put_city(client, city)
    silent, live, _ = sorted(city.counts)
    post(client, rows(city, 0, SLOTS, [silent]))
    post(client, rows(city, SLOTS, SLOTS + 40, [live]))
    late = forecast(client, silent)
    assert [one["slot_start"] for one in late] == starts(city, SLOTS + 40)
    assert {one["method"] for one in late} == {"last_count"}
    assert {one["expected_count"] for one in late} == {float(city.counts[silent][SLOTS - 1])}
    assert {one["upper"] for one in late} == {None}
    assert {one["degraded_reason"] for one in late} == {"no count has come for more than 90 minutes"}
