"""Whatever way a count comes in, its slot starts in the years 1970 to 2099 of UTC; whatever is stored can be read."""

from datetime import UTC, datetime

import pytest

from app.core.database import writing
from app.counts.tables import Count
from app.links.queries import link_or_404
from tests.support.count_files import SIGNALS_HEADER, read_all, signals_row
from tests.support.stored import put_rows

BEYOND = [
    "1970-01-01T00:00:00+10:00",
    "1970-01-01T09:45:00+10:00",
    "2099-12-31T23:45:00-10:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:45:00-12:00",
]
RULE = "must lie in the years 1970 to 2099, in UTC"
READS = [
    "/v1/health",
    "/v1/links/A/health",
    "/v1/accuracy",
    "/v1/links/A/accuracy?by=day",
    "/v1/links/A/counts",
    "/v1/forecasts",
    "/v1/links/A/forecast?horizon=4",
    "/readyz",
    "/metrics",
]
CSV, LINES = "text/csv", "application/x-ndjson"
BODIES = {
    CSV: "link_id,slot_start,count\nA,{0},5\n",
    LINES: '{{"link_id": "A", "slot_start": "{0}", "count": 5}}\n',
    "application/json": '{{"counts": [{{"link_id": "A", "slot_start": "{0}", "count": 5}}]}}',
}


@pytest.mark.parametrize("media_type", BODIES)
def test_posted(client, put_link, media_type):
    put_link("A", zone="Australia/Melbourne")
    for text in BEYOND:
        body = BODIES[media_type].format(text)
        answer = client.post("/v1/counts", content=body, headers={"Content-Type": media_type})
        assert answer.status_code == 422, text
        assert RULE in answer.json()["errors"][0]["reason"]
    assert client.get("/v1/health").json()["totals"]["silent"] == 1


@pytest.mark.parametrize("media_type", [CSV, LINES])
def test_imported(client, put_link, media_type):
    put_link("A", zone="Australia/Melbourne")
    for text in BEYOND:
        answer = client.post("/v1/import", content=BODIES[media_type].format(text))
        assert answer.status_code == 200, text
        assert (answer.json()["stored"], answer.json()["refused"]) == (0, 1)
        assert RULE in answer.json()["refusals"][0]["reason"]
    assert client.get("/v1/health").json()["totals"]["silent"] == 1


@pytest.mark.parametrize(
    ("day", "zone", "taken"), [("1970-01-01", "Australia/Melbourne", 56), ("2099-12-31", "Pacific/Honolulu", 56)]
)
def test_local_days_at_the_ends_are_cut(day, zone, taken):
    counts, reader = read_all(SIGNALS_HEADER, signals_row(day, [7] * 96), zone=zone)
    assert len(counts) == taken
    assert reader.report.reasons == {RULE: 96 - taken}
    assert {refusal.line for refusal in reader.report.refusals} == {2}
    starts = [reader.grid.start(count.slot) for count in counts]
    assert min(starts) >= datetime(1970, 1, 1, tzinfo=UTC)
    assert max(starts) < datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("slot", [-900, -40 * 900, 4_102_444_800])
def test_what_an_older_version_stored_can_be_read(client, put_link, slot):
    put_link("A", zone="Australia/Melbourne")
    with writing(client.app.state.engine) as session:
        key = link_or_404(session, "A").link_key
        put_rows(session, Count, [{"link_key": key, "slot_start": slot, "count": 5, "quality": 0}])
    for path in READS:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
