"""What is said while the database is away and the newest count grows old."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy.exc import OperationalError

from app.clock import FeedClock
from app.forecasts.answer import SaidOfAll, link_forecast
from app.forecasts.outage import latest
from app.line import line_of
from tests.support.city import SLOTS, post, put_city, rows, small_city
from tests.support.databases import on_postgresql


@on_postgresql
def test_past_the_limit_the_profile_answers_from_memory_and_without_an_interval(client, monkeypatch):
    city = small_city()
    put_city(client, city)
    ids = sorted(city.counts)
    post(client, rows(city, 0, 3 * SLOTS, ids[:1]))
    runtime = client.app.state.runtime
    board, engine = runtime.board, runtime.engine
    said = latest(board, ids[:1]).entries[ids[0]].stated.said
    line_of(engine).away = True
    engine.dispose()

    with pytest.raises(OperationalError):  # nobody looked at all links yet, so there may be more than these
        latest(board)
    with pytest.raises(OperationalError):
        latest(board, ids)
    found = latest(board, ids[:1])
    assert found.stale
    assert found.headers == {"X-Flowcast-Stale": "true"}
    body = link_forecast(board, found.entries[ids[0]], 1, found.stale)
    assert b'"stale":true' in body

    now: Callable[[FeedClock], datetime] = FeedClock.now
    monkeypatch.setattr(FeedClock, "now", lambda clock: now(clock) + timedelta(minutes=91))
    all_said = SaidOfAll(board, found, 1)
    late, tag = all_said.body(), all_said.tag()
    assert b'"method":"profile","degraded_reason":"no count has come for more than 90 minutes"' in late
    assert b'"expected_count":%s,"lower":null,"upper":null' % str(said.usual[0]).encode() in late
    assert tag != SaidOfAll(board, found._replace(stale=False), 1).tag()


def test_what_others_issued_is_taken_note_of_and_nothing_is_issued_for_it(client):
    city = small_city()
    put_city(client, city)
    ids = sorted(city.counts)
    post(client, rows(city, 0, SLOTS, ids[:2]))
    board = client.app.state.runtime.board
    assert board.remembered() is None
    board.take_note()
    known = board.remembered()
    assert {link_id: entry.stated is not None for link_id, entry in known.items()} == dict.fromkeys(ids[:2], True) | {
        ids[2]: False
    }
    client.delete(f"/v1/links/{ids[2]}").raise_for_status()
    board.take_note()
    assert sorted(board.remembered()) == ids[:2]
    assert board.remembered(ids).keys() == set(ids[:2])
