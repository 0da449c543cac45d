"""What the commands that touch the service's database share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.commands.console import FAILED, notes, refuse
from app.core.database import open_database
from app.core.errors import Problem
from app.core.schema import NEWEST_STEP, schema_step
from app.settings import Settings, settings_from_environment


def settings_or_refuse(command: str) -> Settings:
    """Read the settings, or say in one line which of them is wrong."""
    try:
        return settings_from_environment()
    except ValidationError as problem:
        wrong = problem.errors(include_input=False)[0]
        name = "_".join(["FLOWCAST", *(str(part).upper() for part in wrong["loc"])])
        refuse(command, f"{name} is refused; {wrong['msg'].removeprefix('Value error, ')}")
    except SettingsError as problem:  # a secret's file cannot be read
        refuse(command, problem.__cause__ or problem)


@contextmanager
def service_database(command: str, settings: Settings) -> Iterator[Engine]:
    """Open the database for one command; what goes wrong with it is reported in one line."""
    engine = None
    try:
        engine = open_database(settings.database_url)
        yield engine
    except Problem as problem:
        refuse(command, problem.detail)
    except (SQLAlchemyError, OSError) as problem:
        # The first line only, and never the address, which may hold a password.
        reason = str(getattr(problem, "orig", None) or problem).splitlines()[0]
        notes.print(f"flowcast {command}: {reason}", style="red", soft_wrap=True, markup=False)
        raise typer.Exit(FAILED) from None
    finally:
        if engine is not None:
            engine.dispose()


@contextmanager
def current_database(command: str, settings: Settings) -> Iterator[Engine]:
    """Open the database of the settings for one command, or say in one line why not."""
    with service_database(command, settings) as engine:
        step = schema_step(engine) or "none"
        if step != NEWEST_STEP:
            refuse(command, f"the schema is at step {step}, this version needs {NEWEST_STEP}: flowcast db upgrade")
        yield engine
