"""Forecasts in memory are current, whatever this process or another one writes."""

import psycopg
import pytest
from starlette.testclient import TestClient

from app.core.database import Change, open_database, record_change, writing
from app.counts.ingest import check_counts, store_counts
from app.main import create_app
from tests.support.city import SLOTS, TRAINED_DAYS, post, rows, slot_start
from tests.support.databases import on_postgresql
from tests.support.services import ADMIN_KEY
from tests.support.waiting import wait_until

NOW = TRAINED_DAYS * SLOTS  # the first slot without a count
KEY = {"X-API-Key": ADMIN_KEY}


def first_slot(client, link_id):
    return client.get(f"/v1/links/{link_id}/forecast").json()["forecasts"][0]["slot_start"]


def wait_until_following(client):
    """Wait until a service is notified of what others write: until then, nothing is answered from memory."""
    changes = client.app.state.change_feed
    wait_until(lambda: changes.version() == changes.version())


def wait_for(client, link_id, slot):
    wait_until(lambda: first_slot(client, link_id) == slot)


def test_a_posted_count_replaces_one_entry_here_and_evicts_it_elsewhere(client, settings, city):
    moved, still = list(city.counts)[:2]
    wait_until_following(client)
    assert first_slot(client, still) == slot_start(city, NOW)
    with TestClient(create_app(settings), headers=KEY) as other:
        wait_until_following(other)
        assert first_slot(other, moved) == first_slot(other, still) == slot_start(city, NOW)
        elsewhere = other.app.state.forecast_cache
        before = elsewhere.look_up([still])[still].issued
        post(client, rows(city, NOW, NOW + 1, [moved]))
        entries = client.app.state.forecast_cache.look_up([moved, still])
        assert entries[moved].issued.slots()[0] == entries[still].issued.slots()[0] + 900
        wait_for(other, moved, slot_start(city, NOW + 1))
        assert elsewhere.look_up([still])[still].issued is before
        path = f"/v1/links/{moved}/forecast?horizon=4"
        assert other.get(path).content == client.get(path).content  # as it was issued there and is stored


@on_postgresql
def test_an_entry_needs_no_database_until_its_link_is_written(client, settings, city):
    moved, still = list(city.counts)[:2]
    with TestClient(create_app(settings), headers=KEY) as other:
        wait_until_following(other)
        cache = other.app.state.forecast_cache
        cache.look_up()
        entry = cache.get(still)
        assert entry is not None
        post(client, rows(city, NOW, NOW + 1, [moved]))
        wait_until(lambda: cache.get(moved) is None)
        assert cache.get(still) is entry
        assert cache.look_up()[moved].key.as_of == entry.key.as_of + 900
        assert cache.get(moved) is not None


@on_postgresql
def test_others_are_followed_also_after_all_connections_were_cut(client, settings, city, database_url):
    link_id = next(iter(city.counts))
    with TestClient(create_app(settings), headers=KEY) as other:
        assert first_slot(other, link_id) == slot_start(city, NOW)
        post(client, rows(city, NOW, NOW + 1, [link_id]))
        wait_for(other, link_id, slot_start(city, NOW + 1))
        with psycopg.connect(database_url, autocommit=True) as connection:
            cut = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
        assert len(cut) > 2
        batch = {"counts": rows(city, NOW + 1, NOW + 2, [link_id])}
        wait_until(lambda: client.post("/v1/counts", json=batch).status_code == 200)  # 503 until it has noticed
        wait_until(lambda: other.get(f"/v1/links/{link_id}/forecast").status_code == 200)
        wait_for(other, link_id, slot_start(city, NOW + 2))


@pytest.mark.journey
def test_a_forecast_that_was_never_issued_is_issued_when_it_is_read(client, settings, city):
    link_id = next(iter(city.counts))
    assert first_slot(client, link_id) == slot_start(city, NOW)
    row = rows(city, NOW, NOW + 1, [link_id])[0]
    engine = open_database(settings.database_url)
    with writing(engine) as session:  # and then the process that did this is killed
        links, counts, _ = check_counts(session, {0: row | {"count": 7}}, client.app.state.clock)
        stored = store_counts(session, links, counts)
        record_change(session, Change.COUNTS, [link.link_key for link in stored.moved])
    engine.dispose()
    assert [link.link_id for link in stored.moved] == [link_id]
    wait_for(client, link_id, slot_start(city, NOW + 1))


def test_a_forecast_that_a_reader_issued_first_stays(client, settings, city):
    links = list(city.counts)[:3]
    runtime = client.app.state
    wait_until_following(client)
    batch = rows(city, NOW, NOW + 1, links)
    with writing(runtime.engine) as session:  # between this and its forecasts ...
        posted_links, counts, _ = check_counts(session, dict(enumerate(batch)), runtime.clock)
        stored = store_counts(session, posted_links, counts)
        record_change(session, Change.COUNTS, [link.link_key for link in stored.moved])
    first = runtime.forecast_cache.look_up([links[1]])[links[1]].issued  # ... one of them is read
    assert runtime.forecast_cache.issue(list(stored.moved)) == len(links)
    ready = {link_id: entry.issued for link_id, entry in runtime.forecast_cache.look_up(links).items()}
    assert {issued.slots()[0] for issued in ready.values()} == {first.slots()[0]}
    assert ready[links[1]] == first
    assert ready[links[0]].issued_at > first.issued_at
