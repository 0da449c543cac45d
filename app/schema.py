"""The state of the database's schema: which step it is at, and how to bring it up to date."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

_alone = threading.Lock()
MIGRATIONS = Path(__file__).parents[1] / "migrations"


def upgrade_schema(engine: Engine, to: str = "head") -> None:
    """Bring the schema up to a step; of several processes that do so at once, one works and the others wait."""
    _run(engine, command.upgrade, to)


def downgrade_schema(engine: Engine, to: str) -> None:
    """Take the schema back to a step."""
    _run(engine, command.downgrade, to)


def check_schema(engine: Engine) -> None:
    """Fail when the tables in the code and the migrations tell different stories."""
    config = _config()
    with _alone, engine.connect() as connection:
        config.attributes["connection"] = connection
        command.check(config)


def schema_step(engine: Engine) -> str | None:
    """Which step the database is at; None before the first."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_step() -> str | None:
    """Which step the code expects."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _run(engine: Engine, move: object, to: str) -> None:
    assert callable(move)
    config = _config()
    # Alembic keeps what it is at in a module of its own: one at a time in a process.
    with _alone, engine.execution_options(writes=True).begin() as connection:
        config.attributes["connection"] = connection
        move(config, to)
