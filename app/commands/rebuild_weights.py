"""``flowcast models rebuild-weights``: compute the weights of experts again."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from app.commands.console import FAILED, notes, progress_bar, refuse
from app.commands.database import current_database, read_settings
from app.core.database import reading
from app.forecasts.compute import Forecaster
from app.forecasts.profile_fallback import LINKS_AT_ONCE
from app.forecasts.rebuild_weights import rebuild_weights
from app.links.queries import all_links, link_or_404
from app.registry.loaded_models import LoadedModels
from app.registry.store import open_store


def rebuild_weights_command(
    link_id: Annotated[str | None, typer.Argument(metavar="[LINK_ID]", help="Id of the link.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every link that an ensemble forecasts.")] = False,
) -> None:
    """Compute the weights of experts again from the stored counts, as after many late or corrected ones.

    They begin with those that the link had when its experts last changed. Forecasts that were issued stay.

    Example:

        flowcast models rebuild-weights Ba
        flowcast models rebuild-weights --all
    """
    if every == (link_id is not None):
        refuse("models rebuild-weights", "name a LINK_ID, or give --all")
    settings = read_settings("models rebuild-weights")
    with current_database("models rebuild-weights", settings) as engine, progress_bar() as progress:
        with reading(engine) as session:
            links = all_links(session) if link_id is None else [link_or_404(session, link_id)]
        ensembles = [link for link in links if link.has_ensemble]
        if link_id is not None and not ensembles:
            refuse("models rebuild-weights", f"link {link_id!r} is not forecast by an ensemble of experts")
        forecaster = Forecaster(LoadedModels(open_store(settings), most=settings.models_in_memory), settings.holidays)
        done: set[str] = set()
        bar = progress.add_task("computing weights", total=len(ensembles))
        for begin in range(0, len(ensembles), LINKS_AT_ONCE):
            part = ensembles[begin : begin + LINKS_AT_ONCE]
            done |= rebuild_weights(engine, forecaster, part)
            progress.update(bar, advance=len(part))
    for link in ensembles:
        if link.link_id not in done:
            reason = "counts kept arriving, or a model cannot be read"
            notes.print(escape(f"link {link.link_id!r} is left out: {reason}"), style="red")
    notes.print(f"{len(done)} of {len(ensembles)} ensembles have new weights")
    if len(done) < len(ensembles):
        raise typer.Exit(FAILED)
