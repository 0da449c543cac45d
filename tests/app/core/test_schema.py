import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from app.core.database import open_database, writing
from app.core.schema import MIGRATIONS, NEWEST_STEP, check_schema, downgrade_schema, schema_step, upgrade_schema
from app.forecasts.tables import Forecast
from app.maintenance.tables import ALL_TABLES
from app.registry.queries import active_models
from app.registry.tables import Ensemble, ModelVersion
from tests.support.stored import add_link, put_rows, select_rows
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


class TestExperts:
    """Step 0006, with rows of the version before and of this one."""

    def put_model(self, session, link_key, version, algorithm, hours):
        at = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hours)
        session.add(
            ModelVersion(
                link_key=link_key, version=version, state="active", algorithm=algorithm, folder=f"{link_key}/{version}",
                fingerprint=f"{version}" * 64, rank=1, trained_from=at, trained_to=at, about={}, created_at=at,
                activated_at=at,
            )
        )  # fmt: skip
        session.flush()

    def test_what_is_active_stays_so_and_a_second_algorithm_may_join(self, engine):
        key = add_link(engine).link_key
        downgrade_schema(engine, "0005")
        with writing(engine) as session:
            self.put_model(session, key, 1, "NETWORK", 0)
        with pytest.raises(IntegrityError), writing(engine) as session:
            self.put_model(session, key, 2, "KR_SML", 1)
        upgrade_schema(engine)
        with writing(engine) as session:
            self.put_model(session, key, 2, "KR_SML", 1)
            assert [(ref.version, ref.algorithm) for ref in active_models(session)[key]] == [
                (1, "NETWORK"),
                (2, "KR_SML"),
            ]
        with pytest.raises(IntegrityError), writing(engine) as session:
            self.put_model(session, key, 3, "KR_SML", 2)

    def test_on_the_way_back_the_model_activated_last_forecasts(self, engine):
        one, two = add_link(engine, "A").link_key, add_link(engine, "B").link_key
        with writing(engine) as session:
            self.put_model(session, one, 1, "KR_SML", 1)
            self.put_model(session, one, 2, "NETWORK", 0)
            self.put_model(session, two, 1, "NETWORK", 0)
            session.execute(text("UPDATE links SET choice = 'ensemble'"))
            session.add(Ensemble(link_key=one, as_of=900, state=b"s", start_as_of=900, start=b"s"))
            facts = {"horizon": 1, "level": 0.9, "filled_lags": 0, "issued_at": 0, "expected": 5.0}
            rows = [
                {
                    "link_key": one,
                    "slot_start": 900 * i,
                    "model_version": version,
                    "method": 7,
                    "experts": b"e",
                    **facts,
                }
                for i, version in enumerate((0, 1, 2))
            ]
            put_rows(
                session, Forecast, [*rows, {"link_key": two, "slot_start": 0, "model_version": 1, "method": 6} | facts]
            )
        downgrade_schema(engine, "0005")
        query = "SELECT link_key, version FROM trained_models WHERE state = 'active' ORDER BY link_key"
        assert select_rows(engine, query) == [(one, 1), (two, 1)]
        assert select_rows(engine, "SELECT choice FROM links") == [(None,), (None,)]
        query = "SELECT model_version, method FROM forecasts ORDER BY link_key, model_version"
        assert select_rows(engine, query) == [(0, 4), (1, 0), (2, 6), (1, 6)]
        upgrade_schema(engine)
        check_schema(engine)
