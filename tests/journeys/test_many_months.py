"""More months of history than PostgreSQL has locks for in one transaction."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.core.database import open_database, writing
from app.core.partitions import ensure_months, existing_months, month_begin
from app.core.schema import downgrade_schema, upgrade_schema
from app.counts.tables import Count
from app.settings import Settings
from tests.support.postgresql import own_postgresql, programs
from tests.support.stored import add_link, put_rows, select_rows

ROOT = Path(__file__).parents[2]
MONTHS = range(480, 660)  # fifteen years
LOCKS = {"max_connections": 12, "max_locks_per_transaction": 16}  # or it would take 680 months, and minutes
COUNTS = "SELECT slot_start, count FROM counts ORDER BY slot_start"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Return a database with fifteen years of counts and months of forecasts."""
    with own_postgresql(fsync=False, **LOCKS) as server:
        opened = open_database(Settings(database_url=server.create("many_months")).database_url)
        upgrade_schema(opened)
        key = add_link(opened, "A").link_key
        for first in range(MONTHS.start, MONTHS.stop, 20):
            slots = [month_begin(month) for month in range(first, first + 20)]
            with writing(opened) as session:
                put_rows(session, Count, [{"link_key": key, "slot_start": s, "count": 7, "quality": 0} for s in slots])
                ensure_months(session, "forecasts", slots)
        yield opened
        opened.dispose()


def recipe(title: str) -> str:
    """Return the commands that docs/operations.md has after a line, for PostgreSQL outside containers."""
    after = (ROOT / "docs" / "operations.md").read_text().split("\n### PostgreSQL\n", 1)[1]
    found = re.search(rf"{re.escape(title)}```\n(.*?)```", after, re.DOTALL)
    assert found, title
    return found[1]


def test_the_documented_commands_back_up_and_restore(engine: Engine, tmp_path: Path) -> None:
    before = select_rows(engine, COUNTS)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "artifact").write_text("as it was")
    folders = f"{programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    url = engine.url.set(drivername="postgresql").render_as_string()
    environment = os.environ | {"PATH": folders, "DATABASE": url, "FLOWCAST_DATABASE_URL": url}

    def run(commands: str) -> None:
        done = subprocess.run(
            ["bash", "-c", commands], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    run(recipe("to back up:\n\n"))
    with writing(engine) as session:
        session.connection().exec_driver_sql("DELETE FROM counts WHERE slot_start < %s", (month_begin(500),))
    (tmp_path / "models" / "artifact").write_text("something else")
    run("here=$(echo backup/*)\n" + recipe("then:\n\n"))
    assert select_rows(engine, COUNTS) == before
    assert (tmp_path / "models" / "artifact").read_text() == "as it was"
    [[schemas]] = select_rows(engine, "SELECT count(*) FROM pg_namespace WHERE nspname = 'before_restore'")
    assert schemas == 0


def test_the_schema_goes_back_a_step_and_forward_again(engine: Engine) -> None:
    before = select_rows(engine, COUNTS)
    assert len(before) == len(MONTHS)
    downgrade_schema(engine, "0002")
    assert select_rows(engine, COUNTS) == before
    assert select_rows(engine, "SELECT relkind::text FROM pg_class WHERE relname = 'counts'") == [("r",)]
    upgrade_schema(engine)
    assert select_rows(engine, COUNTS) == before
    with engine.connect() as connection:
        assert existing_months(connection, "counts") == set(MONTHS)
