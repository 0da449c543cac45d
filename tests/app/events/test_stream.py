"""``GET /v1/events``: the latest forecast of each link, numbered, and resumed after an id."""

import json
from datetime import UTC, datetime

import pytest

from app.core.database import writing
from app.events import stream
from app.events.stream import NetworkEvents
from app.links.queries import link_or_404
from app.registry.tables import Activation
from app.server.resources import open_resources
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.event_frames import events_in
from tests.support.stored import MONDAY, SLOT, utc
from tests.support.waiting import wait_until


@pytest.fixture
def settings(settings):
    """Return settings with which a stream ends after its first events."""
    return settings.model_copy(update={"stream_seconds": 0.01})


@pytest.fixture
def links(put_link):
    for link_id in ("A", "B"):
        put_link(link_id, zone="UTC")


@pytest.fixture
def runtime(client):
    return client.app.state


def post(client, slot, *link_ids):
    counts = [{"link_id": link_id, "slot_start": utc(MONDAY + slot * SLOT), "count": 10} for link_id in link_ids]
    assert client.post("/v1/counts", json={"counts": counts}).status_code == 200


def resume(client, last_event_id):
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    answer = client.get("/v1/events", headers=headers)
    assert answer.status_code == 200, answer.text
    return events_in(answer.text)


@pytest.fixture
def no_overlap(monkeypatch):
    """Resume exactly after the id."""
    monkeypatch.setattr(stream, "OVERLAP_MICROSECONDS", 0)


class TestPayload:
    @on_sqlite
    def test_all_horizons_as_get_forecasts_has_them_and_a_sequence_number(self, client, links, runtime):
        events = NetworkEvents(runtime.engine, runtime.change_feed, runtime.forecast_cache)
        [ready], over = events.look(None)
        assert (ready.event, json.loads(ready.data), over) == ("ready", {"links": 2}, False)
        post(client, 0, "A")
        [event], _ = events.look(ready)
        [link] = client.get("/v1/forecasts?horizon=4&links=A").json()["links"]
        assert event.event == "forecast"
        assert json.loads(event.data) == {"sequence": MONDAY // SLOT, **link}
        assert len(link["forecasts"]) == 4

    @on_sqlite
    def test_a_skipped_forecast_is_a_gap_that_can_be_read_back(self, client, links, runtime):
        events = NetworkEvents(runtime.engine, runtime.change_feed, runtime.forecast_cache)
        events.look(None)
        sequences = []
        for slots in ([0], [1, 2, 3]):
            for slot in slots:
                post(client, slot, "A")
            [event], _ = events.look(None)
            sequences.append(json.loads(event.data)["sequence"])
        first, last = sequences
        assert last - first == 3
        path = f"/v1/links/A/forecasts?horizon=1&from={utc((first + 2) * SLOT)}&to={utc((last + 1) * SLOT)}"
        history = client.get(path.replace("+", "%2B")).json()["forecasts"]
        assert [past["as_of_slot"] for past in history] == [utc(n * SLOT) for n in range(first + 1, last)]

    @on_sqlite
    def test_activations_do_not_show_keys(self, client, links, runtime):
        events = NetworkEvents(runtime.engine, runtime.change_feed, runtime.forecast_cache)
        events.look(None)
        activate(runtime, "A", 2)
        [event], _ = events.look(None)
        shown = json.loads(event.data)
        assert event.event == "activation"
        assert (shown["link_id"], shown["version"], shown["previous_version"]) == ("A", 2, 1)
        assert "activated_by" not in shown


class TestResume:
    @on_sqlite
    def test_without_an_id_only_ready_comes(self, client, links):
        post(client, 0, "A", "B")
        [ready] = resume(client, None)
        assert (ready.name, ready.data) == ("ready", {"links": 2})

    def test_the_latest_forecast_of_every_link_that_changed_since(self, client, links, no_overlap):
        post(client, 0, "A", "B")
        [ready] = resume(client, None)
        post(client, 1, "B")
        post(client, 2, "B")
        again, event = resume(client, ready.id)
        assert (again.name, again.id) == ("ready", ready.id)
        assert (event.name, event.data["link_id"], event.data["sequence"]) == ("forecast", "B", MONDAY // SLOT + 2)
        assert int(event.id) > int(ready.id)
        assert [one.data["link_id"] for one in resume(client, int(event.id) + 1)[1:]] == []

    def test_what_was_issued_shortly_before_comes_again(self, client, links):
        post(client, 0, "A")
        _, event = resume(client, 1)
        assert [one.data["link_id"] for one in resume(client, event.id)[1:]] == ["A"]

    def test_a_link_whose_model_was_activated_since(self, client, links, runtime, no_overlap):
        post(client, 0, "A", "B")
        [ready] = resume(client, None)
        activate(runtime, "A", 2)
        names = [(one.name, one.data.get("link_id")) for one in resume(client, ready.id)]
        assert names == [("ready", None), ("forecast", "A"), ("activation", "A")]

    def test_in_another_process(self, client, links, settings):
        post(client, 0, "A")
        other = open_resources(settings)
        frames, _ = NetworkEvents(other.engine, other.change_feed, other.forecast_cache, 1).look(None)
        other.close()
        assert [frame.event for frame in frames] == ["ready", "forecast"]

    @pytest.mark.parametrize("value", ["yesterday", "-1", "1" * 17])
    @on_sqlite
    def test_an_id_that_no_event_has(self, client, value):
        answer = client.get("/v1/events", headers={"Last-Event-ID": value})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "Last-Event-ID"


class TestOtherProcesses:
    @on_postgresql
    def test_a_forecast_of_another_process_changes_what_streams_wait_for(self, client, links, settings):
        other = open_resources(settings)
        events, seen, names = NetworkEvents(other.engine, other.change_feed, other.forecast_cache), None, []

        def look_if_changed():
            nonlocal seen
            stamp = events.version()
            if stamp != seen:
                names.extend(frame.event for frame in events.look(None)[0])
                seen = stamp
            return names

        look_if_changed()
        post(client, 0, "A")
        wait_until(lambda: "forecast" in look_if_changed())
        other.close()
        assert names == ["ready", "forecast"]


def activate(runtime, link_id, version):
    with writing(runtime.engine) as session:
        row = {"version": version, "previous_version": version - 1, "activated_by": "a-key", "reason": "better"}
        key = link_or_404(session, link_id).link_key
        session.add(Activation(link_key=key, activated_at=datetime.now(UTC), figures=None, **row))
