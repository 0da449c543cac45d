"""``flowcast keys``: API keys, on the machine itself."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.commands.console import AsJson, notes, out, refuse
from app.commands.database import current_database, read_settings
from app.core.database import reading, writing
from app.keys.issue import OVERLAP_HOURS, issue_key, revoke_key
from app.keys.queries import all_keys
from app.keys.schemas import MOST_DAYS, IssuedKeyOut, KeyList, KeyOut
from app.keys.tables import Scope

keys = typer.Typer(no_args_is_help=True, add_completion=False)


@keys.callback()
def keys_command() -> None:
    """Create, list and revoke API keys, also after the admin key was lost.

    Example:

        flowcast keys create --name signals --scopes read,ingest
    """


@keys.command("create")
def create_command(
    name: Annotated[str, typer.Option(help="Who uses the key, or for what.")],
    scopes: Annotated[str, typer.Option(help=f"What it may do, comma-separated: {', '.join(Scope)}.")] = "read",
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, max=MOST_DAYS, help="Days until it expires; never by default.")
    ] = None,
    replaces: Annotated[
        str | None, typer.Option(metavar="KEY_ID", help="Id of the key that this one replaces.")
    ] = None,
    overlap_hours: Annotated[
        float, typer.Option(min=0, help="Hours that the replaced key stays valid.")
    ] = OVERLAP_HOURS,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it; it is not shown again.

    Example:

        flowcast keys create --name signals --scopes read,ingest --expires-in-days 365
    """
    if not name.strip():
        refuse("keys create", f"--name={name!r} is refused; it must not be empty")
    wanted, known = [scope.strip() for scope in scopes.split(",")], [scope.value for scope in Scope]
    for scope in wanted:
        if scope not in known:
            refuse("keys create", f"--scopes={scope!r} is refused; it must be one of {', '.join(known)}")
    settings = read_settings("keys create")
    with current_database("keys create", settings) as engine, writing(engine) as session:
        issued = issue_key(
            session,
            name=name,
            scopes=wanted,
            expires_in_days=expires_in_days,
            replaces=replaces,
            overlap_hours=overlap_hours,
            environment_key=settings.admin_key is not None,
        )
        session.flush()
        shown = IssuedKeyOut.of(issued.row, key=issued.key)
    if as_json:
        typer.echo(shown.model_dump_json(indent=2))
        return
    notes.print(f"key {shown.key_id} may {', '.join(shown.scopes)}; it is shown only now:")
    typer.echo(shown.key)


@keys.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List all keys without their secrets, the newest first.

    Example:

        flowcast keys list
    """
    with current_database("keys list") as engine, reading(engine) as session:
        shown = KeyList(keys=[KeyOut.of(row) for row in all_keys(session)])
    if as_json:
        typer.echo(shown.model_dump_json(indent=2))
        return
    table = Table("key", "name", "scopes", "state", "made", "expires", "last used")
    for key in shown.keys:
        moments = (key.created_at, key.expires_at, key.last_used_at)
        times = (f"{moment:%Y-%m-%d %H:%M}Z" if moment else "-" for moment in moments)
        table.add_row(key.key_id, escape(key.name), ", ".join(key.scopes), key.state, *times)
    out.print(table)


@keys.command("revoke")
def revoke_command(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="Id of the key, as `flowcast keys list` shows it.")],
    force: Annotated[bool, typer.Option("--force", help="Revoke even the last key with the scope admin.")] = False,
) -> None:
    """Revoke a key; serving processes refuse it within 60 s.

    Example:

        flowcast keys revoke 3f9c0a1b2d4e
    """
    settings = read_settings("keys revoke")
    with current_database("keys revoke", settings) as engine, writing(engine) as session:
        revoke_key(session, key_id, environment_key=force or settings.admin_key is not None)
    out.print(f"key {key_id} is revoked")
