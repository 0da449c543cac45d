"""The settings and the database of a command; what is wrong with them is reported in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.commands.console import FAILED, refuse
from app.core.database import open_database
from app.core.errors import Problem, broken_rule, shown_value
from app.core.schema import NEWEST_STEP, schema_step
from app.settings import NEVER_SHOWN, Settings, settings_from_environment


def read_settings(command: str) -> Settings:
    """Read the settings, or exit and name the one that is refused."""
    try:
        return settings_from_environment()
    except ValidationError as problem:
        wrong = problem.errors()[0]
        field = str(wrong["loc"][0]) if wrong["loc"] else ""
        shown = "" if field in NEVER_SHOWN else f"={shown_value(wrong['input'])!r}"
        name = f"FLOWCAST_{field.upper()}{shown}" if field else "the settings"
        refuse(command, f"{name} is refused; it {broken_rule(wrong)}")
    except SettingsError as problem:  # a secret's file cannot be read
        refuse(command, problem.__cause__ or problem)


def first_line(problem: Exception) -> str:
    """Return the first line of a database's error, without the address, which may hold a password."""
    return str(getattr(problem, "orig", None) or problem).splitlines()[0]


@contextmanager
def service_database(command: str, settings: Settings | None = None) -> Iterator[Engine]:
    """Open the database of the settings, whatever its schema; exit where it cannot be used or a rule is broken."""
    engine = None
    try:
        engine = open_database((settings or read_settings(command)).database_url)
        yield engine
    except Problem as problem:
        refuse(command, problem)
    except (SQLAlchemyError, OSError) as problem:
        refuse(command, first_line(problem), FAILED)
    finally:
        if engine is not None:
            engine.dispose()


@contextmanager
def current_database(command: str, settings: Settings | None = None) -> Iterator[Engine]:
    """Open the database of the settings; exit where its schema is not the one that this version needs."""
    with service_database(command, settings) as engine:
        if (step := schema_step(engine) or "none") != NEWEST_STEP:
            refuse(command, f"the schema is at step {step}, this version needs {NEWEST_STEP}: flowcast db upgrade")
        yield engine
