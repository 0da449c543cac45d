"""``flowcast db``: the database, its schema, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from alembic.util import CommandError
from rich.table import Table
from sqlalchemy import Engine

from app.commands.console import FAILED, INTERRUPTED, notes, out, progress_bar, refuse
from app.commands.db_copy import copy_command
from app.commands.service import current_database, service_database, settings_or_refuse
from app.core.database import reading
from app.core.schema import NEWEST_STEP, check_schema, downgrade_schema, schema_step, upgrade_schema
from app.maintenance.old_months import empty_months
from app.maintenance.prune import (
    EMPTY_MONTHS,
    Need,
    Old,
    count_old,
    needed_counts,
    needed_records,
    old_before,
    prune,
)

PRUNE = "db prune"
MOST_DAYS = 36_500


def prune_command(
    older_than: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_DAYS, metavar="DAYS", help="Counts, corrections and forecasts older than this."),
    ] = None,
    records_older_than: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_DAYS, metavar="DAYS", help="Audit and finished retrain runs older than this."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Keep fewer days than forecasts and retraining use.")] = False,
) -> None:
    """Remove old counts, forecasts and records, a little at a time, while the service goes on."""
    if older_than is None and records_older_than is None:
        refuse(PRUNE, "give --older-than DAYS, --records-older-than DAYS or both")
    settings = settings_or_refuse(PRUNE)
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
            _print("would go", found)
            return
        gone = Counter(dict.fromkeys(found, 0))
        try:
            _prune(engine, old, sum(found.values()), gone)
        except KeyboardInterrupt:
            notes.print("interrupted: what is listed is gone, the rest is as it was")
            _print("removed", gone)
            raise typer.Exit(INTERRUPTED) from None
    _print("removed", gone)


def _require(days: int, option: str, need: Need, force: bool) -> None:
    if days < need.days and not force:
        refuse(PRUNE, f"{option}={days} is refused; it must be at least {need.days} ({need.by}), or --force be given")


def _prune(engine: Engine, old: Old, total: int, gone: Counter[str]) -> None:
    with progress_bar() as progress:
        bar = progress.add_task("removing", total=total)

        def removed(table: str, n: int) -> None:
            gone[table] += n
            progress.update(bar, advance=n, description=f"removing from {table}")

        prune(engine, old, removed)


def _print(title: str, rows: dict[str, int]) -> None:
    table = Table("table", title)
    table.columns[1].justify = "right"
    for name, n in rows.items():
        table.add_row(name, f"{n:,}")
    out.print(table)


db = typer.Typer(help="The database: its schema, moving it, letting go of what is old.", no_args_is_help=True)
db.command("copy")(copy_command)
db.command("prune")(prune_command)


@db.command("upgrade")
def upgrade_command() -> None:
    """Bring the schema up to date; of several that do so at once, one works and the others wait."""
    with service_database("db upgrade", settings_or_refuse("db upgrade")) as engine:
        before = schema_step(engine)
        with notes.status("upgrading; a step that moves rows takes some 10 s a million"):
            upgrade_schema(engine)
        after = schema_step(engine)
    out.print(f"the schema is at step {after}" + ("" if before != after else ", as it was"))


@db.command("check")
def check_command() -> None:
    """Return whether the schema is the one this version expects; exit code 1 if not."""
    with service_database("db check", settings_or_refuse("db check")) as engine:
        step = schema_step(engine) or "none"
        if step != NEWEST_STEP:
            notes.print(
                f"the schema is at step {step}; this version needs {NEWEST_STEP}: flowcast db upgrade", style="red"
            )
            raise typer.Exit(FAILED)
        try:
            check_schema(engine)
        except CommandError as problem:
            notes.print(f"flowcast db check: {problem}", style="red", soft_wrap=True, markup=False)
            raise typer.Exit(FAILED) from None
    out.print(f"the schema is at step {step}, as it should be")


@db.command("downgrade")
def downgrade_command(
    to: Annotated[str, typer.Argument(metavar="REV", help="Step to go back to; base for none.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; what the later steps stored is lost.")] = False,
) -> None:
    """Take the schema back to a step; what later steps stored is lost."""
    if not yes and not typer.confirm(f"Go back to step {to}? What later steps stored is lost."):
        raise typer.Exit(FAILED)
    with service_database("db downgrade", settings_or_refuse("db downgrade")) as engine:
        try:
            downgrade_schema(engine, to)
        except CommandError as problem:
            refuse("db downgrade", problem)
        out.print(f"the schema is at step {schema_step(engine) or 'base'}")
