"""A database that is ready for a command: its schema must be the one this version expects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from app.commands.console import refuse
from app.commands.service import service_database
from app.core.schema import newest_step, schema_step
from app.settings import Settings


@contextmanager
def current_database(command: str, settings: Settings) -> Iterator[Engine]:
    """Open the database of the settings for one command, or say in one line why not."""
    with service_database(command, settings) as engine:
        step, newest = schema_step(engine) or "none", newest_step()
        if step != newest:
            refuse(command, f"the schema is at step {step}, this version needs {newest}: flowcast db upgrade")
        yield engine
