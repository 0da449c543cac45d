"""A process that is too busy to read an answer does not take the database for hung."""

import ctypes

from sqlalchemy import func, select

from app.core import change_feed as changes
from app.core.database import open_database
from app.core.pg_notify import CHANNEL
from app.settings import Settings
from tests.support.databases import on_postgresql
from tests.support.waiting import wait_until

ANSWER_SECONDS = 1.0  # longer than PostgreSQL takes on a busy machine
HELD_MICROSECONDS = 1_200_000


@on_postgresql
def test_a_busy_process_does_not_cut_its_connections(database_url, monkeypatch, caplog):
    monkeypatch.setattr(changes, "CHECK_SECONDS", 0.0)  # always waiting for an answer
    engine = open_database(Settings(database_url=database_url).database_url)
    watched = changes.watch_changes(engine)
    try:
        wait_until(lambda: watched.served_version() == watched.served_version())  # listening
        monkeypatch.setattr(changes, "ANSWER_SECONDS", ANSWER_SECONDS)
        for _ in range(10):
            ctypes.PyDLL(None).usleep(HELD_MICROSECONDS)  # a PyDLL keeps the interpreter lock
        assert watched.served_version() == watched.served_version()
        assert not watched.unreachable
        for _ in range(20):  # a notification that comes with an answer is not lost
            before = watched.served_version()
            with engine.begin() as connection:
                connection.execute(select(func.pg_notify(CHANNEL, "served")))
            wait_until(lambda before=before: watched.served_version() != before)
    finally:
        watched.close()
        engine.dispose()
    assert "the database does not answer" not in caplog.text
