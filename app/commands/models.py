"""``flowcast models``: the registry of trained models."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from sqlalchemy import Engine

from app.commands.console import FAILED, notes, out, refuse
from app.commands.registration import artifact_folders, link_named, register_all, tell
from app.commands.service import current_database, settings_or_refuse
from app.core.database import reading, writing
from app.core.errors import NotYet, Problem
from app.links.queries import LinkInfo, all_links
from app.registry.activate import activate, deactivate
from app.registry.cleanup import remove_old_versions, sweep_store
from app.registry.loaded_models import LoadedModels
from app.registry.queries import newest_candidates, registry_size
from app.registry.schemas import LARGEST_VERSION, ModelList
from app.registry.show import list_models
from app.registry.store import open_store

COLUMNS = ("link", "version", "state", "algorithm", "rank", "trained on", "RMSE", "profile's", "MB", "damaged")


def print_versions(lists: list[ModelList]) -> None:
    """Print one line a trained model, and how many there are."""
    table = Table(*COLUMNS)
    size = 0
    for one in lists:
        for model in one.models:
            errors = [model.held_out.get(method, {}).get("rmse") for method in ("candidate", "profile")]
            size += model.size_bytes
            table.add_row(
                escape(one.link_id),
                f"{model.version}",
                f"[bold]{model.state}[/]" if model.state == "active" else model.state,
                model.algorithm,
                f"{model.rank}",
                f"{model.trained_from:%Y-%m-%d} to {model.trained_to:%Y-%m-%d}",
                *("-" if error is None else f"{error:.1f}" for error in errors),
                megabytes(model.size_bytes),
                escape(model.damaged or ""),
            )
    if not table.row_count:
        out.print("the registry is empty")
        return
    out.print(table)
    out.print(f"versions: {table.row_count}, on disk: {megabytes(size)} MB")


def megabytes(size: int) -> str:
    """Write bytes as megabytes."""
    return f"{size / 1e6:.2f}"


models = typer.Typer(help="The registry of trained models.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
MOST = 1000


@models.command("list")
def list_command(
    link: Annotated[str | None, typer.Option(help="Only this link's.")] = None, as_json: AsJson = False
) -> None:
    """List trained models, link by link, the newest first."""
    settings = settings_or_refuse("models list")
    with current_database("models list", settings) as engine:
        loaded = LoadedModels(open_store(settings), most=1)
        wanted = [link_named(engine, link)] if link is not None else None
        with reading(engine) as session:
            lists = [list_models(session, loaded, one, None, MOST) for one in wanted or all_links(session)]
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in lists if one.models or link], indent=2))
    else:
        print_versions(lists)


@models.command("add")
def add_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An artifact's folder, or a folder of them.")],
    activates: Annotated[bool, typer.Option("--activate", help="Make each the active model of its link.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put artifacts into the registry, each for the link it names."""
    settings = settings_or_refuse("models add")
    try:
        folders = artifact_folders(folder)
    except OSError as problem:
        refuse("models add", problem)
    with current_database("models add", settings) as engine:
        outcomes = register_all(engine, open_store(settings), folders, activates=activates)
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    tell(outcomes)
    if any(outcome.state == "refused" for outcome in outcomes):
        raise typer.Exit(FAILED)


@models.command("activate")
def activate_command(
    link_id: Annotated[str | None, typer.Argument(metavar="[LINK_ID]", help="Whose.")] = None,
    version: Annotated[
        int | None,
        typer.Argument(min=1, max=LARGEST_VERSION, metavar="[VERSION]", help="The newest candidate if none."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The newest candidate of every link.")] = False,
) -> None:
    """Make a version the active one, newer or older; the one before is retired and can be activated again."""
    if every == (link_id is not None):
        refuse("models activate", "name a LINK_ID, or give --all")
    settings = settings_or_refuse("models activate")
    with current_database("models activate", settings) as engine:
        chosen = _chosen(engine, link_id, version)
        store, failed = open_store(settings), 0
        for link, number in chosen:
            try:
                with writing(engine) as session:
                    activate(session, store, link, number)
                out.print(f"link {escape(link.link_id)}: version {number} is active")
            except Problem as problem:
                failed += 1
                notes.print(escape(problem.detail), style="red", soft_wrap=True)
    if not chosen:
        notes.print("no link has a candidate")
    if failed:
        raise typer.Exit(FAILED)


@models.command("deactivate")
def deactivate_command(
    link_id: Annotated[str, typer.Argument(metavar="LINK_ID", help="Whose.")],
    reason: Annotated[str | None, typer.Option(help="Why; it is kept in the link's history.")] = None,
) -> None:
    """Withdraw the active model: the profile answers until a version is activated."""
    with current_database("models deactivate", settings_or_refuse("models deactivate")) as engine:
        link = link_named(engine, link_id)
        with writing(engine) as session:
            version = deactivate(session, link, reason=reason).previous_version
    out.print(f"link {escape(link.link_id)}: version {version} is withdrawn, the profile answers")


@models.command("tidy")
def tidy_command(
    keep: Annotated[
        int | None, typer.Option(min=1, help="Retired versions, and as many candidates, that each link keeps.")
    ] = None,
) -> None:
    """Remove versions nobody will go back to, with their artifacts, and what died writers left in the store."""
    settings = settings_or_refuse("models tidy")
    store, n, most = open_store(settings), 0, keep or settings.keep_retired
    with current_database("models tidy", settings) as engine:
        with reading(engine) as session:
            links = all_links(session)
        for link in links:
            with writing(engine) as session:
                gone = remove_old_versions(session, store, link.link_key, most)
            n += len(gone)
            if gone:
                out.print(f"link {escape(link.link_id)}: removed version {', '.join(map(str, gone))}")
        swept = sweep_store(engine, store)
        with reading(engine) as session:
            versions, size = registry_size(session)
    notes.print(f"registry: {n} removed, {len(swept)} leftovers swept, {versions} stay with {megabytes(size)} MB")


def _chosen(engine: Engine, link_id: str | None, version: int | None) -> list[tuple[LinkInfo, int]]:
    with reading(engine) as session:
        newest = newest_candidates(session)
        links = all_links(session)
    if link_id is None:
        return [(link, newest[link.link_key]) for link in links if link.link_key in newest]
    link = link_named(engine, link_id)
    if version is None and link.link_key not in newest:
        raise NotYet(f"link {link_id!r} has no candidate; name a version")
    return [(link, newest[link.link_key] if version is None else version)]
