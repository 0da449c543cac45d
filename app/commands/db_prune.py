"""``flowcast db prune``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from sqlalchemy import Engine

from app.commands.console import INTERRUPTED, notes, out, progress_bar, refuse
from app.commands.current_schema import current_database
from app.commands.service import settings_or_refuse
from app.core.database import reading
from app.maintenance.old_months import empty_months
from app.maintenance.prune import EMPTY_MONTHS, Old, count_old, old_before, prune

if TYPE_CHECKING:
    from app.maintenance.needed_days import Need

NAME = "db prune"
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
        refuse(NAME, "give --older-than DAYS, --records-older-than DAYS or both")
    settings = settings_or_refuse(NAME)
    # Here, for it knows of training and its libraries, which the other commands of this group need not load.
    from app.maintenance.needed_days import needed_counts, needed_records

    with current_database(NAME, settings) as engine:
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
        refuse(NAME, f"{option}={days} is refused; it must be at least {need.days} ({need.by}), or --force be given")


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
