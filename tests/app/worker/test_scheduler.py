"""Periodic work is done by one worker at a time, and by the next one when that one is gone."""

import psycopg
import pytest

from app.core.database import open_database
from app.worker.scheduler import SchedulerLock
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.waiting import wait_until


@pytest.fixture
def engine(database_url):
    opened = open_database(database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield opened
    opened.dispose()


@on_postgresql
def test_one_holds_the_lock_until_it_or_its_connection_ends(engine, database_url):
    one, two = SchedulerLock(engine, "host:1:a"), SchedulerLock(engine, "host:2:b")
    assert [one.acquire(), two.acquire(), one.acquire()] == [True, False, True]
    one.release()
    wait_until(two.acquire)  # the server releases the lock when it sees that the connection was closed
    assert not one.acquire()
    with psycopg.connect(database_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'flowcast scheduler host:2:b'"
        ).fetchall()
    assert ended == [(True,)]
    assert [two.acquire(), one.acquire(), two.acquire()] == [False, True, False]
    one.release()


@on_sqlite
def test_on_sqlite_every_worker_holds_it(engine):
    assert SchedulerLock(engine, "a").acquire()
    assert SchedulerLock(engine, "b").acquire()
