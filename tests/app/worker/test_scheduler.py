"""Who may do periodic work: one worker at a time, and the next one when that one is gone."""

import psycopg
import pytest

from app.core.database import open_database
from app.worker.scheduler import Turn
from tests.support.databases import on_postgresql, on_sqlite


@pytest.fixture
def engine(database_url):
    opened = open_database(database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield opened
    opened.dispose()


@on_postgresql
def test_one_has_the_turn_until_it_ends_or_its_connection_does(engine, database_url):
    one, two = Turn(engine, "host:1:a"), Turn(engine, "host:2:b")
    assert [one.held(), two.held(), one.held()] == [True, False, True]
    one.end()
    assert [two.held(), one.held()] == [True, False]
    with psycopg.connect(database_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'flowcast scheduler host:2:b'"
        ).fetchall()
    assert ended == [(True,)]
    assert [two.held(), one.held(), two.held()] == [False, True, False]
    one.end()


@on_sqlite
def test_in_sqlite_every_worker_may(engine):
    assert Turn(engine, "a").held()
    assert Turn(engine, "b").held()
