"""One judgement everywhere: counts as JSON and CSV, the health of a link and of all links, and what is learnt from."""

import csv
import io

import numpy as np
import pytest

from app.core.database import reading
from app.counts.series import stored_series
from app.links.queries import link_or_404
from app.training.aligned_counts import examined
from tests.support.databases import on_sqlite
from tests.support.stored import MONDAY, SLOT, put_counts, utc

DAYS = 30


@pytest.fixture
def faulty(client, put_link):
    """Store thirty days with counts above the capacity, stuck across midnight and dead, and a suspect count."""
    put_link("A", zone="Australia/Melbourne", capacity=4 * 100)
    rng = np.random.default_rng(3)
    counts = {MONDAY + i * SLOT: int(value) for i, value in enumerate(rng.integers(40, 90, DAYS * 96))}
    at = [MONDAY + day * 96 * SLOT for day in range(DAYS)]
    counts |= {at[2] + i * SLOT: 120 + i for i in range(20)}
    counts |= {at[5]: 151, at[20] + 3 * SLOT: 5000}
    counts |= {at[16] + i * SLOT: 77 for i in range(40, 70)}
    counts |= {at[28] + i * SLOT: 0 for i in range(20, 50)}
    marked = {at[29] + 5 * SLOT: counts.pop(at[29] + 5 * SLOT)}
    put_counts(client, "A", counts)
    put_counts(client, "A", marked, quality="suspect")
    return at


def verdicts_of(client, **query):
    answer = client.get("/v1/links/A/counts", params={"limit": 10_000, **query})
    assert answer.status_code == 200, answer.text
    return {row["slot_start"]: row["verdict"] for row in answer.json()["counts"] if row["verdict"] is not None}


def test_counts_health_csv_and_training_agree_slot_by_slot(client, faulty):
    everything = {"from": utc(MONDAY), "to": utc(MONDAY + DAYS * 96 * SLOT)}
    counts = verdicts_of(client, **everything)
    assert {name: list(counts.values()).count(name) for name in set(counts.values())} == {
        "impossible": 2,  # not the twenty between the capacity and 1.5 times as much
        "stuck": 30,
        "dead": 30,
    }
    health = client.get("/v1/links/A/health", params={"days": DAYS + 1}).json()
    by_slot = {}
    for verdict in health["verdicts"]:
        first = int(np.datetime64(verdict["from"].rstrip("Z")).astype("datetime64[s]").astype(int))
        by_slot |= {utc(first + i * SLOT): verdict["name"] for i in range(verdict["slots"])}
    assert by_slot == counts
    text = client.get("/v1/links/A/counts", params={"limit": 10_000, **everything}, headers={"Accept": "text/csv"}).text
    assert {row["slot_start"]: row["verdict"] for row in csv.DictReader(io.StringIO(text)) if row["verdict"]} == counts
    with reading(client.app.state.engine) as session:
        series = stored_series(session, link_or_404(session, "A"))
    found = np.flatnonzero(examined(series, 100.0).suspect & ~series.suspect)
    assert {utc((series.first + int(i)) * SLOT) for i in found} == set(counts)


@on_sqlite
def test_a_slot_has_the_same_verdict_in_whichever_span(client, faulty):
    whole = verdicts_of(client, **{"from": utc(MONDAY), "to": utc(MONDAY + DAYS * 96 * SLOT)})
    for begin, end in ((0, 3 * 96), (5 * 96, 5 * 96 + 1), (16 * 96 + 41, 16 * 96 + 44), (12 * 96, 30 * 96)):
        span = {utc(MONDAY + i * SLOT) for i in range(begin, end)}
        part = verdicts_of(client, **{"from": utc(MONDAY + begin * SLOT), "to": utc(MONDAY + end * SLOT)})
        assert part == {slot: name for slot, name in whole.items() if slot in span}
    for days in (1, 2, 15, 366):
        health = client.get("/v1/links/A/health", params={"days": days}).json()
        assert health["state"] == "ok"
        assert {verdict["name"] for verdict in health["verdicts"]} <= set(whole.values())
    (row,) = client.get("/v1/health").json()["links"]
    assert row["verdicts"] == ["dead", "stuck", "impossible"]


@on_sqlite
def test_quality_stays_the_senders(client, faulty):
    span = {"from": utc(faulty[20]), "to": utc(faulty[20] + 4 * SLOT)}
    rows = client.get("/v1/links/A/counts", params=span).json()["counts"]
    assert (rows[3]["quality"], rows[3]["verdict"]) == ("observed", "impossible")
    marked = client.get("/v1/links/A/counts", params={"from": utc(faulty[29] + 5 * SLOT)}).json()["counts"][0]
    assert (marked["quality"], marked["verdict"]) == ("suspect", None)


@on_sqlite
def test_slots_after_the_newest_count_have_no_verdict_nor_empty_links(client, put_link, faulty):
    end = MONDAY + DAYS * 96 * SLOT
    later = client.get("/v1/links/A/counts", params={"from": utc(end), "to": utc(end + SLOT)}).json()["counts"]
    assert later == [{"slot_start": utc(end), "count": None, "quality": None, "verdict": None}]
    put_link("B", zone="UTC")
    span = {"from": utc(end), "to": utc(end + SLOT)}
    assert client.get("/v1/links/B/counts", params=span).json()["counts"] == later
