"""A client that follows events through a restart of the service."""

import pytest

from tests.support.databases import on_postgresql
from tests.support.event_frames import events_in
from tests.support.services import running_service, slot_start

pytestmark = pytest.mark.journey


def post(service, slot, *link_ids):
    counts = [{"link_id": link_id, "slot_start": slot_start(slot), "count": 10 + slot} for link_id in link_ids]
    assert service.request("POST", "/v1/counts", {"counts": counts})[0] == 200


def first_events(service, **headers):
    """Return the events that a stream begins with; it ends soon by itself."""
    with service.stream("/v1/events", **headers) as answer:
        return events_in(answer.read().decode())


# What is in the events is tested on SQLite in tests/app/events.
@on_postgresql
def test_a_client_resumes_after_a_restart_sees_a_gap_and_reads_it_back(database_url, tmp_path):
    short = {"FLOWCAST_STREAM_SECONDS": "0.1"}
    with running_service(database_url, tmp_path, **short) as service:
        for link_id in ("A", "B"):
            assert service.request("PUT", f"/v1/links/{link_id}", {"zone": "UTC"})[0] == 201
        [ready] = first_events(service)
        post(service, 0, "A", "B")
        before = {event.data["link_id"]: event for event in first_events(service, **{"Last-Event-ID": ready.id})[1:]}
        assert sorted(before) == ["A", "B"]
        for slot in (1, 2, 3):
            post(service, slot, "A")
        service.kill()
    with running_service(database_url, tmp_path, **short) as service:
        last = max(event.id for event in before.values())
        after = {event.data["link_id"]: event for event in first_events(service, **{"Last-Event-ID": last})[1:]}
        seen, now = before["A"].data["sequence"], after["A"].data["sequence"]
        assert now == seen + 3
        [link] = service.request("GET", "/v1/forecasts?horizon=4&links=A")[1]["links"]
        assert {**link, "sequence": now} == after["A"].data
        history = service.request("GET", f"/v1/links/A/forecasts?horizon=1&from={slot_start(2)}&to={slot_start(4)}")[1]
        assert [past["as_of_slot"] for past in history["forecasts"]] == [slot_start(1), slot_start(2)]
