"""``flowcast db``: the database: its schema, copying it, removing what is old."""

from __future__ import annotations

from collections import Counter
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

from app.commands.console import FAILED, notes, out, progress_bar, refuse
from app.commands.database import current_database, read_settings, service_database
from app.core.database import reading
from app.core.errors import broken_rule
from app.core.partitions import empty_months
from app.core.schema import NEWEST_STEP, check_schema, downgrade_schema, schema_step, upgrade_schema
from app.maintenance.copy_database import (
    CannotCopy,
    CopyDiffers,
    all_tables,
    copy_database,
    count_rows,
    prepare_target,
    snapshot,
)
from app.maintenance.prune import (
    EMPTY_MONTHS,
    Cutoffs,
    NeededDays,
    count_old,
    needed_counts,
    needed_records,
    old_before,
    prune,
)
from app.settings import Settings

COPY, PRUNE = "db copy", "db prune"
SQLITE = "sqlite:///"
MOST_DAYS = 36_500

db = typer.Typer(no_args_is_help=True, add_completion=False)


@db.callback()
def db_command() -> None:
    """Create, check, copy and prune the database.

    Example:

        flowcast db upgrade
    """


@db.command("copy")
def copy_command(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="Empty database to copy to; its schema is created.")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Database to copy; FLOWCAST_DATABASE_URL by default.")
    ] = None,
) -> None:
    """Copy a whole database into an empty one, such as from SQLite to PostgreSQL; all of it or nothing.

    Example:

        flowcast db copy --to postgresql://flowcast@localhost/flowcast
    """
    settings = read_settings(COPY)
    origin = settings if source is None else _settings_for("--from", source)
    goal = _settings_for("--to", to)
    if origin.database_url.startswith(SQLITE) and not Path(make_url(origin.database_url).database or "").is_file():
        refuse(COPY, f"--from={origin.database_url} is refused; there is no such file")
    if _identity(origin.database_url) == _identity(goal.database_url):
        refuse(COPY, "--to is refused; it is the database to copy from")
    with service_database(COPY, origin) as old, service_database(COPY, goal) as new:
        try:
            prepare_target(old, new)
            rows = _copy(old, new)
        except (CannotCopy, CommandError) as problem:
            refuse(COPY, problem)
        except CopyDiffers as differences:
            for difference in differences.found:
                notes.print(escape(str(difference)), soft_wrap=True)
            refuse(COPY, f"{differences}; nothing was copied", FAILED)
        except KeyboardInterrupt:
            notes.print("interrupted: nothing was copied")
            raise
    _print_numbers("rows", rows)
    out.print(f"{sum(rows.values()):,} rows copied and compared one by one")
    out.print(
        f"artifacts are not in the database: they stay in {escape(str(settings.model_store))} (FLOWCAST_MODEL_STORE)",
        soft_wrap=True,
    )


def _settings_for(option: str, url: str) -> Settings:
    try:
        # FLOWCAST_DATABASE_PASSWORD is for a PostgreSQL that is named without a password, and for no other.
        return (
            Settings(database_url=url) if _lacks_password(url) else Settings(database_url=url, database_password=None)
        )
    except ValidationError as problem:
        rule = broken_rule(problem.errors(include_input=False)[0])
        refuse(COPY, f"{option} is refused; it {rule}")  # without the address, which may hold a password


def _lacks_password(url: str) -> bool:
    try:
        return url.startswith("postgres") and make_url(url).password is None
    except (ArgumentError, ValueError):  # the settings will refuse it
        return False


def _identity(url: str) -> object:
    parts = make_url(url)
    return Path(parts.database or "").resolve() if url.startswith(SQLITE) else (parts.host, parts.port, parts.database)


def _copy(old: Engine, new: Engine) -> dict[str, int]:
    with snapshot(old) as connection, progress_bar() as progress:
        rows = {table.name: count_rows(connection, table) for table in all_tables()}
        bar = progress.add_task("copying", total=2 * sum(rows.values()))
        uncopied = dict(rows)

        def advance(table: str, n: int) -> None:
            verb = "copying" if uncopied[table] > 0 else "checking"
            uncopied[table] -= n
            progress.update(bar, advance=n, description=f"{verb} {table}")

        copy_database(connection, new, advance)
    return rows


@db.command("prune")
def prune_command(
    older_than: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_DAYS, metavar="DAYS", help="Counts, corrections and forecasts older than this."),
    ] = None,
    records_older_than: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_DAYS, metavar="DAYS", help="Audit and finished retrain runs older than this."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove even what forecasts and retraining use.")] = False,
) -> None:
    """Remove old counts, forecasts and records in small steps, while the service runs.

    Example:

        flowcast db prune --older-than 730 --records-older-than 365 --dry-run
    """
    if older_than is None and records_older_than is None:
        refuse(PRUNE, "give --older-than DAYS, --records-older-than DAYS or both")
    settings = read_settings(PRUNE)
    with current_database(PRUNE, settings) as engine:
        with reading(engine) as session:
            if older_than is not None:
                _require(older_than, "--older-than", needed_counts(session, settings), force)
            if records_older_than is not None:
                _require(records_older_than, "--records-older-than", needed_records(settings), force)
            old = old_before(session, settings, older_than, records_older_than)
            found = count_old(session, old)
        if older_than is not None and (empty := len(empty_months(engine))):
            found[EMPTY_MONTHS] = empty
        if dry_run:
            _print_numbers("would be removed", found)
            return
        removed = Counter(dict.fromkeys(found, 0))
        try:
            _prune(engine, old, sum(found.values()), removed)
        except KeyboardInterrupt:
            notes.print("interrupted: what is listed was removed, the rest is unchanged")
            _print_numbers("removed", removed)
            raise
    _print_numbers("removed", removed)


def _require(days: int, option: str, need: NeededDays, force: bool) -> None:
    if days < need.days and not force:
        refuse(
            PRUNE,
            f"{option}={days} is refused; it must be at least {need.days} ({need.by}); --force removes more",
        )


def _prune(engine: Engine, old: Cutoffs, total: int, removed: Counter[str]) -> None:
    with progress_bar() as progress:
        bar = progress.add_task("removing", total=total)

        def advance(table: str, n: int) -> None:
            removed[table] += n
            progress.update(bar, advance=n, description=f"removing from {table}")

        prune(engine, old, advance)


@db.command("upgrade")
def upgrade_command() -> None:
    """Create the schema or bring it up to date; of several at once, one works and the others wait.

    Example:

        flowcast db upgrade
    """
    with service_database("db upgrade") as engine:
        before = schema_step(engine)
        with notes.status("upgrading; a step that moves rows takes about 10 s per million rows"):
            upgrade_schema(engine)
        after = schema_step(engine)
    out.print(f"the schema is at step {after}" + ("" if before != after else ", as it was"))


@db.command("check")
def check_command() -> None:
    """Check that the schema is the one that this version expects; exit with 1 if not.

    Example:

        flowcast db check
    """
    with service_database("db check") as engine:
        if (step := schema_step(engine) or "none") != NEWEST_STEP:
            message = f"the schema is at step {step}; this version needs {NEWEST_STEP}: flowcast db upgrade"
            notes.print(message, style="red")
            raise typer.Exit(FAILED)
        try:
            check_schema(engine)
        except CommandError as problem:
            refuse("db check", problem, FAILED)
    out.print(f"the schema is at step {step}, as it should be")


@db.command("downgrade")
def downgrade_command(
    to: Annotated[
        str, typer.Argument(metavar="STEP", help="Step to go back to: its number, or base for an empty database.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; what the later steps stored is lost.")] = False,
) -> None:
    """Take the schema back to an earlier step; what later steps stored is lost.

    Example:

        flowcast db downgrade 0004
    """
    if not yes and not typer.confirm(f"Go back to step {to}? What later steps stored is lost."):
        raise typer.Exit(FAILED)
    with service_database("db downgrade") as engine:
        try:
            downgrade_schema(engine, to)
        except CommandError as problem:
            refuse("db downgrade", problem)
        out.print(f"the schema is at step {schema_step(engine) or 'base'}")


def _print_numbers(heading: str, rows: dict[str, int]) -> None:
    """Print a number for each table of the database."""
    table = Table("table", heading)
    table.columns[1].justify = "right"
    for name, n in rows.items():
        table.add_row(name, f"{n:,}")
    out.print(table)
