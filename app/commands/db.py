"""``flowcast db``: the database, its schema, and what becomes of it."""

from __future__ import annotations

from typing import Annotated

import typer
from alembic.util import CommandError

from app.commands.console import FAILED, notes, out, refuse
from app.commands.db_copy import copy_command
from app.commands.db_prune import prune_command
from app.commands.service import service_database, settings_or_refuse
from app.core.schema import check_schema, downgrade_schema, newest_step, schema_step, upgrade_schema

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
        step, newest = schema_step(engine) or "none", newest_step()
        if step != newest:
            notes.print(f"the schema is at step {step}; this version needs {newest}: flowcast db upgrade", style="red")
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
