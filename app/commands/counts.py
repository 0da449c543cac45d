"""``flowcast counts``: counts in the service's database, on the machine itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from app.commands.console import AsJson, out, refuse
from app.commands.database import current_database
from app.core.database import reading, writing
from app.core.times import read_instant, read_span
from app.counts.history import LONGEST_REASON, DeletionReason, delete_counts
from app.counts.queries import number_of_counts
from app.counts.schemas import DeletedCounts
from app.links.queries import link_or_404

counts = typer.Typer(no_args_is_help=True, add_completion=False)

COMMAND = "counts delete"


@counts.callback()  # without it, Typer would make the only command `flowcast counts` itself
def counts_command() -> None:
    """Delete wrong counts from the database.

    Example:

        flowcast counts delete Ba --from 2025-09-15T06:15:00Z --to 2025-09-15T06:30:00Z --reason "detector fault"
    """


@counts.command("delete")
def delete_command(
    link_id: Annotated[str, typer.Argument(metavar="LINK", help="The link's id.")],
    begin: Annotated[
        str,
        typer.Option(
            "--from", help="Start of the span, included: RFC 3339 with an offset, such as 2025-09-15T06:15:00Z."
        ),
    ],
    end: Annotated[str, typer.Option("--to", help="End of the span, excluded.")],
    reason: Annotated[
        str, typer.Option(help=f"Reason, kept with each deleted count; 1 to {LONGEST_REASON} characters.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many counts it would delete.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete counts of a link; they are kept among the corrections, and forecasts follow the counts that are left.

    Example:

        flowcast counts delete Ba --from 2025-09-15T06:15:00Z --to 2025-09-15T06:30:00Z --reason "detector fault"
    """
    first, last, why = _instant("--from", begin), _instant("--to", end), _reason(reason)
    with current_database(COMMAND) as engine:
        with reading(engine) as session:
            link, span = link_or_404(session, link_id), read_span(first, last, None, 0)
            assert span is not None
            n = number_of_counts(session, link.link_key, span)
        found = DeletedCounts(link_id=link_id, from_=first, to=last, reason=why, deleted=n)
        if not dry_run:
            if n and not yes:
                typer.confirm(f"Delete {n} counts of link {link_id} from {begin} to {end}?", abort=True, err=True)
            with writing(engine) as session:
                found = delete_counts(session, link_id, first, last, why)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, by_alias=True))
    else:
        out.print(f"{found.deleted} counts of link {link_id} {'would be' if dry_run else 'are'} deleted", markup=False)


def _instant(option: str, text: str) -> datetime:
    try:
        return read_instant(text)
    except ValueError as problem:
        refuse(COMMAND, f"{option}={text!r} is refused; {problem}")


def _reason(text: str) -> str:
    try:
        return TypeAdapter[str](DeletionReason).validate_python(text)
    except ValidationError:
        refuse(COMMAND, f"--reason={text[:100]!r} is refused; it must have 1 to {LONGEST_REASON} characters")
