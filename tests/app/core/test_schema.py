import os
import subprocess
import sys

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from app.core.database import open_database
from app.core.schema import (
    MIGRATIONS,
    NEWEST_STEP,
    check_schema,
    downgrade_schema,
    newest_step,
    schema_step,
    upgrade_schema,
)
from app.maintenance.all_tables import Table
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def engine(settings):
    engine = open_database(settings.database_url)
    yield engine
    engine.dispose()


def test_up_down_and_up_again(engine):
    assert schema_step(engine) == newest_step()
    downgrade_schema(engine, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    upgrade_schema(engine)
    assert set(Table.metadata.tables) <= set(inspect(engine).get_table_names())


def test_tables_and_migrations_tell_the_same_story(engine):
    check_schema(engine)


def test_upgrading_what_is_up_to_date_changes_nothing(engine):
    upgrade_schema(engine)
    assert schema_step(engine) == newest_step()


@pytest.mark.journey
def test_several_processes_may_upgrade_at_once(engine, settings):
    downgrade_schema(engine, "base")
    environment = os.environ | {"FLOWCAST_DATABASE_URL": settings.database_url}
    command = [sys.executable, "-m", "app", "db", "upgrade"]
    upgrades = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [upgrade.communicate(timeout=WAIT_SECONDS)[1] for upgrade in upgrades]
    assert [upgrade.returncode for upgrade in upgrades] == [0, 0, 0], said
    assert schema_step(engine) == newest_step()


def test_the_newest_step_is_that_of_the_migrations():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == NEWEST_STEP
