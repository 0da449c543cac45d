"""``flowcast db copy``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from alembic.util import CommandError
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table
from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from app.commands.console import FAILED, INTERRUPTED, notes, out, progress_bar, refuse
from app.commands.service import service_database, settings_or_refuse
from app.maintenance.copy_database import (
    CannotCopy,
    CopyDiffers,
    all_tables,
    copy_database,
    count_rows,
    prepare,
    snapshot,
)
from app.settings import Settings

NAME = "db copy"
SQLITE = "sqlite:///"


def copy_command(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="An empty database; its schema is made.")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="What to copy; FLOWCAST_DATABASE_URL if not given.")
    ] = None,
) -> None:
    """Copy a whole database into an empty one, from SQLite to PostgreSQL or any other way; all of it or nothing."""
    settings = settings_or_refuse(NAME)
    origin = _named("--from", source) if source is not None else settings
    goal = _named("--to", to)
    _require_two(origin, goal)
    with service_database(NAME, origin) as old, service_database(NAME, goal) as new:
        try:
            prepare(old, new)
            rows = _copy(old, new)
        except (CannotCopy, CommandError) as problem:
            refuse(NAME, problem)
        except CopyDiffers as differences:
            _say_differences(differences)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            notes.print("interrupted: nothing was copied")
            raise typer.Exit(INTERRUPTED) from None
    _say_done(rows, settings)


def _named(option: str, url: str) -> Settings:
    try:
        # FLOWCAST_DATABASE_PASSWORD is for a PostgreSQL that is named without a password, and for no other.
        return (
            Settings(database_url=url) if _lacks_password(url) else Settings(database_url=url, database_password=None)
        )
    except ValidationError as problem:
        rule = problem.errors(include_input=False)[0]["msg"].removeprefix("Value error, ")
        refuse(NAME, f"{option} is refused; {rule}")  # without the address, which may hold a password


def _lacks_password(url: str) -> bool:
    try:
        return url.startswith("postgres") and make_url(url).password is None
    except (ArgumentError, ValueError):  # it will be refused for that
        return False


def _require_two(origin: Settings, goal: Settings) -> None:
    url = origin.database_url
    if url.startswith(SQLITE) and not Path(make_url(url).database or "").is_file():
        refuse(NAME, f"--from={url} is refused; there is no such file")
    if _place(url) == _place(goal.database_url):
        refuse(NAME, "--to is refused; it is the database to copy from")


def _place(url: str) -> object:
    parts = make_url(url)
    return Path(parts.database or "").resolve() if url.startswith(SQLITE) else (parts.host, parts.port, parts.database)


def _copy(old: Engine, new: Engine) -> dict[str, int]:
    with snapshot(old) as connection:
        rows = {table.name: count_rows(connection, table) for table in all_tables()}
        with progress_bar() as progress:
            bar = progress.add_task("copying", total=2 * sum(rows.values()))
            left = dict(rows)

            def advance(table: str, n: int) -> None:
                verb = "copying" if left[table] > 0 else "checking"
                left[table] -= n
                progress.update(bar, advance=n, description=f"{verb} {table}")

            copy_database(connection, new, advance)
    return rows


def _say_differences(differences: CopyDiffers) -> None:
    for difference in differences.found:
        notes.print(escape(str(difference)), soft_wrap=True)
    notes.print(f"flowcast {NAME}: {differences}; nothing was kept of the copy", style="red", soft_wrap=True)


def _say_done(rows: dict[str, int], settings: Settings) -> None:
    table = Table("table", "rows")
    table.columns[1].justify = "right"
    for name, n in rows.items():
        table.add_row(name, f"{n:,}")
    out.print(table)
    out.print(f"{sum(rows.values()):,} rows copied and compared one by one")
    out.print(
        f"artifacts are not in the database: they stay in {escape(str(settings.model_store))} (FLOWCAST_MODEL_STORE)",
        soft_wrap=True,
    )
