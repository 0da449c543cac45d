"""Notices between processes about what they wrote, and a check of the database that a busy process passes."""

import itertools

import pytest
from sqlalchemy import func, select

from app.core import change_feed as changes
from app.core.change_feed import Notice, parse_notice
from app.core.database import CHANNEL, Change, format_notices, open_database
from app.settings import Settings
from tests.support.databases import on_postgresql
from tests.support.waiting import WAIT_SECONDS, wait_until


@on_postgresql
def test_a_busy_process_does_not_cut_its_connections(database_url, monkeypatch, caplog):
    hours = itertools.count(0.0, 3600.0)  # as if the process had stood still between any two of its steps
    monkeypatch.setattr(changes, "monotonic", lambda: next(hours))
    monkeypatch.setattr(changes, "ANSWER_SECONDS", WAIT_SECONDS)  # that the kernel gives PostgreSQL
    engine = open_database(Settings(database_url=database_url).database_url)
    watched = changes.watch_changes(engine)
    try:
        wait_until(lambda: watched.served_version() == watched.served_version())  # listening
        for _ in range(20):  # a notification that comes with an answer is not lost
            before = watched.served_version()
            with engine.begin() as connection:
                connection.execute(select(func.pg_notify(CHANNEL, "served")))
            wait_until(lambda before=before: watched.served_version() != before)
        assert watched.served_version() == watched.served_version()
        assert not watched.unreachable
    finally:
        watched.close()
        engine.dispose()
    assert "the database does not answer" not in caplog.text


LONGEST = 7999  # bytes that PostgreSQL takes in one notice


def test_notices_about_links_come_back_as_they_were_sent() -> None:
    (one,) = format_notices(Change.FORECASTS, "somebody", [17, 18, 2**31 - 1])
    assert parse_notice(one) == Notice(Change.FORECASTS, "somebody", (17, 18, 2**31 - 1))


def test_many_links_make_several_notices_that_postgresql_takes() -> None:
    keys = list(range(2**31 - 2000, 2**31))
    sent = list(format_notices(Change.COUNTS, "a" * 30, keys))
    assert max(map(len, sent)) <= LONGEST
    assert [key for notice in sent for key in parse_notice(notice).link_keys] == keys


def test_no_notice_is_sent_without_a_change() -> None:
    assert list(format_notices(Change.NOTHING, "somebody", [])) == []
    assert list(format_notices(Change.COUNTS, "somebody", [])) == []


@pytest.mark.parametrize(
    "payload", ["", "hello", "forecasts somebody 1,x", "counts somebody 1,,2", "counts 1,2", "counts a b 1"]
)
def test_a_notice_that_cannot_be_parsed_may_concern_any_link(payload: str) -> None:
    assert parse_notice(payload) == Notice(Change.SERVED)
