"""A migration that does not live to see its end."""

import os
import signal
import subprocess
import sys

import psycopg
import pytest

from app.core.database import open_database
from app.core.schema import NEWEST_STEP, schema_step, upgrade_schema
from app.settings import Settings
from tests.support.postgresql import NEWEST_VERSION, VERSION, WAITING_SESSIONS, own_postgresql, query_rows
from tests.support.waiting import WAIT_SECONDS, wait_until


def upgrading(url: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"FLOWCAST_DATABASE_URL": url}
    command = [sys.executable, "-m", "app", "db", "upgrade"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def held_up(url: str) -> tuple[psycopg.Connection, subprocess.Popen[bytes]]:
    """Start an upgrade that waits in its middle for a lock on a table."""
    reader = psycopg.connect(url)
    reader.execute("SELECT count(*) FROM trained_models")
    process = upgrading(url)

    def waits() -> bool:
        assert process.poll() is None, process.stdout and process.stdout.read()
        return bool(query_rows(url, WAITING_SESSIONS) != [(0,)])

    wait_until(waits)
    return reader, process


def state(url: str) -> tuple[str | None, list[tuple[object, ...]], bool]:
    engine = open_database(Settings(database_url=url).database_url)
    step = schema_step(engine)
    engine.dispose()
    half = query_rows(url, "SELECT to_regclass('retrain_runs') IS NOT NULL")[0][0]
    return step, query_rows(url, "SELECT slot_start, count FROM counts"), half


@pytest.mark.parametrize("version", [VERSION, NEWEST_VERSION])
def test_a_killed_migration_changed_nothing_and_the_next_succeeds(version):
    with own_postgresql(fsync=False, version=version) as database:
        url = database.create("upgraded")
        engine = open_database(Settings(database_url=url).database_url)
        upgrade_schema(engine, "0001")
        engine.dispose()
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO links (link_id, name, zone, slot_minutes, created_at, updated_at) "
                "VALUES ('A', 'A', 'UTC', 15, now(), now())"
            )
            connection.execute("INSERT INTO counts SELECT link_key, 900, 7, 0 FROM links")
        whole = ("0001", [(900, 7)], False)

        reader, process = held_up(url)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        reader.close()
        assert state(url) == whole

        reader, process = held_up(url)
        database.kill()
        output, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 1
        assert len(output.decode().strip().splitlines()) == 1  # in words, not in a traceback
        reader.close()
        database.start()
        assert state(url) == whole

        engine = open_database(Settings(database_url=url).database_url)
        upgrade_schema(engine)
        engine.dispose()
        assert state(url) == (NEWEST_STEP, [(900, 7)], True)
