"""The schema of the database: the step of the migrations that it is at, upgrades and downgrades.

Alembic is imported only to take a step, because a process that serves needs no more than the step's number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parents[2] / "migrations"
NEWEST_STEP = "0006"  # of the migrations, as a test checks

_alone = threading.Lock()


def upgrade_schema(engine: Engine, to: str = "head") -> None:
    """Upgrade the schema to a step; of several processes that do so at once, one works and the others wait."""
    if to == "head" and schema_step(engine) == NEWEST_STEP:
        return
    from alembic import command

    _run(engine, command.upgrade, to)


def downgrade_schema(engine: Engine, to: str) -> None:
    """Downgrade the schema to a step, each step in a transaction of its own.

    Going back from 0003 merges months over other connections, which would wait for the locks of a later step.
    """
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.script.revision import RevisionError
    from alembic.util import CommandError

    script = ScriptDirectory.from_config(_config())
    try:
        steps = list(script.iterate_revisions(schema_step(engine) or "base", to))
    except RevisionError as problem:  # an unknown step, or a later one
        raise CommandError(str(problem)) from problem
    for step in steps:
        _run(engine, command.downgrade, str(step.down_revision or "base"))


def check_schema(engine: Engine) -> None:
    """Raise an error if the tables in the code and the migrations differ."""
    from alembic import command

    config = _config()
    with _alone, engine.connect() as connection:
        config.attributes["connection"] = connection
        command.check(config)


def schema_step(engine: Engine) -> str | None:
    """Return the step the database is at; None before the first."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _config() -> Config:
    from alembic.config import Config

    config = Config(stdout=StringIO())  # Alembic's own messages are not shown
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _run(engine: Engine, move: Callable[[Config, str], None], to: str) -> None:
    config = _config()
    # Alembic keeps its state in a module: one at a time in a process.
    with _alone, engine.execution_options(writes=True).begin() as connection:
        config.attributes["connection"] = connection
        move(config, to)
