import subprocess
import sys

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from app.core.database import open_database
from app.core.schema import MIGRATIONS, NEWEST_STEP, check_schema, downgrade_schema, schema_step, upgrade_schema
from app.maintenance.tables import ALL_TABLES
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def engine(settings):
    engine = open_database(settings.database_url)
    yield engine
    engine.dispose()


def test_up_down_and_up_again(engine):
    assert schema_step(engine) == NEWEST_STEP
    downgrade_schema(engine, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    upgrade_schema(engine)
    assert set(ALL_TABLES.tables) <= set(inspect(engine).get_table_names())


def test_tables_and_migrations_tell_the_same_story(engine):
    check_schema(engine)


def test_upgrading_what_is_up_to_date_changes_nothing(engine):
    upgrade_schema(engine)
    assert schema_step(engine) == NEWEST_STEP


UPGRADE = """
import sys
from app.core.database import open_database
from app.core.schema import upgrade_schema
engine = open_database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
upgrade_schema(engine)
"""


@pytest.mark.journey
def test_several_processes_may_upgrade_at_once(engine, settings):
    downgrade_schema(engine, "base")
    pipe, command = subprocess.PIPE, [sys.executable, "-c", UPGRADE, settings.database_url]
    other = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert other.stdout.readline() == "ready\n"
    other.stdin.write("go\n")
    other.stdin.flush()
    upgrade_schema(engine)
    output = other.communicate(timeout=WAIT_SECONDS)[1]
    assert other.returncode == 0, output
    assert schema_step(engine) == NEWEST_STEP


def test_the_newest_step_is_that_of_the_migrations():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == NEWEST_STEP
