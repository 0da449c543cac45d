"""``flowcast models``: the registry of trained models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.commands.console import FAILED, AsJson, notes, out, progress_bar, refuse
from app.commands.database import current_database, read_settings
from app.commands.rebuild_weights import rebuild_weights_command
from app.core.database import reading, writing
from app.core.errors import NotFound, Problem
from app.links.queries import LinkInfo, all_links, link_or_404
from app.registry.activate import activate, deactivate
from app.registry.cleanup import remove_old_versions, sweep_store
from app.registry.loaded_models import LoadedModels
from app.registry.queries import active_rows, newest_candidates, registry_size
from app.registry.register import register_model
from app.registry.schemas import LARGEST_VERSION, ModelList
from app.registry.show import list_models
from app.registry.store import ModelStore, open_store
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.folder import MANIFEST
from model.link_model.trained_model import ALGORITHMS as LINK_ALGORITHMS
from model.network_model.network import ALGORITHM as NETWORK

COLUMNS = ("link", "version", "state", "algorithm", "rank", "trained on", "RMSE", "profile's", "MB", "damaged")
MOST = 1000
ALGORITHMS = (*LINK_ALGORITHMS, NETWORK)

models = typer.Typer(no_args_is_help=True, add_completion=False)
models.command("rebuild-weights")(rebuild_weights_command)


@models.callback()
def models_command() -> None:
    """List, add, activate and remove trained models.

    Example:

        flowcast models activate Ba 3
    """


@models.command("list")
def list_command(
    link: Annotated[str | None, typer.Option(help="Only models of this link.")] = None, as_json: AsJson = False
) -> None:
    """List trained models, link by link, the newest first.

    Example:

        flowcast models list --link Ba
    """
    settings = read_settings("models list")
    with current_database("models list", settings) as engine, reading(engine) as session:
        loaded = LoadedModels(open_store(settings), most=1)
        links = all_links(session) if link is None else [link_or_404(session, link)]
        lists = [list_models(session, loaded, one, None, MOST) for one in links]
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in lists if one.models or link], indent=2))
    else:
        print_versions(lists)


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
    """Format bytes as megabytes."""
    return f"{size / 1e6:.2f}"


@dataclass(frozen=True)
class RegistrationOutcome:
    """The outcome for one artifact: ``added``, ``there`` already or ``refused``."""

    folder: str
    link_id: str | None
    state: str
    version: int | None = None
    active: bool = False
    reason: str = ""


@models.command("add")
def add_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An artifact's folder, or a folder of them.")],
    activates: Annotated[bool, typer.Option("--activate", help="Activate each of them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add artifacts to the registry, each for the link that it names.

    Example:

        flowcast models add models --activate
    """
    settings = read_settings("models add")
    try:
        folders = artifact_folders(folder)
    except OSError as problem:
        refuse("models add", problem)
    with current_database("models add", settings) as engine, progress_bar() as progress:
        store = open_store(settings)
        shown = progress.track(folders, description="registering")
        outcomes = [register(engine, store, one, activates=activates) for one in shown]
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    print_outcomes(outcomes)
    if any(outcome.state == "refused" for outcome in outcomes):
        raise typer.Exit(FAILED)


def artifact_folders(folder: Path) -> list[Path]:
    """Return the artifacts a folder is or holds, by name."""
    if (folder / MANIFEST).is_file():
        return [folder]
    found = sorted(inner for inner in folder.iterdir() if (inner / MANIFEST).is_file())
    if not found:
        raise FileNotFoundError(f"{folder} is neither an artifact nor a folder of artifacts: there is no {MANIFEST}")
    return found


def register(engine: Engine, store: ModelStore, folder: Path, *, activates: bool) -> RegistrationOutcome:
    """Register an artifact for the link it names, in a transaction of its own, and activate it if that is wanted."""
    link_id = None
    try:
        link_id = _link_id(folder)
        with writing(engine) as session:
            link = link_or_404(session, link_id)
            registered = register_model(session, store, link, folder)
            if activates:
                activate(session, store, link, registered.version)
    except (Problem, DamagedArtifact, OSError) as problem:
        return RegistrationOutcome(str(folder), link_id, "refused", reason=str(problem))
    state = "added" if registered.new else "there"
    return RegistrationOutcome(str(folder), link_id, state, registered.version, activates)


def _link_id(folder: Path) -> str:
    contents = read_artifact(folder, verify=False).manifest["contents"]
    with suppress(TypeError, KeyError):
        if isinstance(link_id := contents["about"]["link_id"], str):
            return link_id
    raise DamagedArtifact(folder, "it does not name its link")


def print_outcomes(outcomes: Sequence[RegistrationOutcome]) -> None:
    """Print what was refused, and how many artifacts were not."""
    for outcome in outcomes:
        if outcome.state == "refused":
            notes.print(escape(f"{outcome.folder}: {outcome.reason}"), style="red", soft_wrap=True)
    n = Counter(outcome.state for outcome in outcomes)
    notes.print(f"registry: {n['added']} added, {n['there']} already there, {n['refused']} refused")


@models.command("activate")
def activate_command(
    link_id: Annotated[str | None, typer.Argument(metavar="[LINK_ID]", help="Id of the link.")] = None,
    version: Annotated[
        int | None,
        typer.Argument(
            min=1,
            max=LARGEST_VERSION,
            metavar="[VERSION]",
            help="Version; by default the newest candidate of each algorithm.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Activate the newest candidates of every link.")] = False,
) -> None:
    """Activate a version, newer or older; the previous one of its algorithm is retired and can be activated again.

    Example:

        flowcast models activate Ba 3
        flowcast models activate --all
    """
    if every == (link_id is not None):
        refuse("models activate", "name a LINK_ID, or give --all")
    settings = read_settings("models activate")
    failed = False
    with current_database("models activate", settings) as engine:
        with reading(engine) as session:
            chosen = _chosen_versions(session, link_id, version)
        store = open_store(settings)
        for link, number in chosen:
            try:
                with writing(engine) as session:
                    activate(session, store, link, number)
                out.print(f"link {escape(link.link_id)}: version {number} is active")
            except Problem as problem:
                failed = True
                notes.print(escape(str(problem)), style="red", soft_wrap=True)
    if not chosen:
        notes.print("no link has a candidate")
    if failed:
        raise typer.Exit(FAILED)


def _chosen_versions(session: Session, link_id: str | None, version: int | None) -> list[tuple[LinkInfo, int]]:
    newest = newest_candidates(session)
    links = all_links(session) if link_id is None else [link_or_404(session, link_id)]
    if version is not None:
        return [(link, version) for link in links]
    chosen = [(link, number) for link in links for number in newest.get(link.link_key, ())]
    if link_id is not None and not chosen:
        raise NotFound(f"link {link_id!r} has no candidate; name a version")
    return chosen


@models.command("deactivate")
def deactivate_command(
    link_id: Annotated[str, typer.Argument(metavar="LINK_ID", help="Id of the link.")],
    algorithm: Annotated[
        str | None, typer.Option(help=f"Withdraw the model of this algorithm alone: {', '.join(ALGORITHMS)}.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Reason, kept in the history of the link.")] = None,
) -> None:
    """Withdraw the active models: the profile forecasts until a version is activated.

    Example:

        flowcast models deactivate Ba --reason "new lane"
        flowcast models deactivate Ba --algorithm KR_SML
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        refuse("models deactivate", f"algorithm={algorithm!r} is refused; it must be one of {', '.join(ALGORITHMS)}")
    with current_database("models deactivate") as engine, writing(engine) as session:
        link = link_or_404(session, link_id)
        done = deactivate(session, link, algorithm=algorithm, reason=reason)
        left = [row.algorithm for row in active_rows(session, link.link_key)]
    versions = " and ".join(str(one.previous_version) for one in done)
    forecasts = f"active: {', '.join(left)}" if left else "the profile forecasts"
    out.print(f"link {escape(link_id)}: version {versions} is withdrawn; {forecasts}")


@models.command("tidy")
def tidy_command(
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Retired versions of an algorithm, and as many candidates, that a link keeps."),
    ] = None,
) -> None:
    """Remove old versions with their artifacts, and what stopped processes left in the store.

    Example:

        flowcast models tidy --keep 2
    """
    settings = read_settings("models tidy")
    store, n = open_store(settings), 0
    with current_database("models tidy", settings) as engine:
        with reading(engine) as session:
            links = all_links(session)
        for link in links:
            with writing(engine) as session:
                removed = remove_old_versions(session, store, link.link_key, keep or settings.keep_retired)
            n += len(removed)
            if removed:
                out.print(f"link {escape(link.link_id)}: removed version {', '.join(map(str, removed))}")
        swept = sweep_store(engine, store)
        with reading(engine) as session:
            versions, size = registry_size(session)
    notes.print(f"registry: {n} removed, {len(swept)} leftovers swept, {versions} stay with {megabytes(size)} MB")
