"""Putting artifacts into the registry, one after the other, and saying of each what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from sqlalchemy import Engine

from app.commands.console import notes, progress_bar
from app.core.database import reading, writing
from app.core.errors import Problem, no_link
from app.links.queries import LinkInfo, links_by_id
from app.registry.activate import activate
from app.registry.register import register_model
from app.registry.store import ModelStore
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.folder import MANIFEST


@dataclass(frozen=True)
class RegistrationOutcome:
    """What became of one artifact: ``added``, ``there`` already or ``refused``."""

    folder: str
    link_id: str | None
    state: str
    version: int | None = None
    active: bool = False
    reason: str = ""


def artifact_folders(folder: Path) -> list[Path]:
    """Return the artifacts a folder is or holds, in the order of names."""
    if (folder / MANIFEST).is_file():
        return [folder]
    found = sorted(inner for inner in folder.iterdir() if (inner / MANIFEST).is_file())
    if not found:
        raise FileNotFoundError(f"{folder} neither is an artifact nor holds any: there is no {MANIFEST}")
    return found


def register_all(
    engine: Engine, store: ModelStore, folders: Iterable[Path], *, activates: bool
) -> list[RegistrationOutcome]:
    """Register artifacts, each in a transaction of its own, under a progress bar."""
    waiting = list(folders)
    outcomes = []
    with progress_bar() as progress:
        bar = progress.add_task("registering", total=len(waiting))
        for folder in waiting:
            outcomes.append(register_one(engine, store, folder, activates=activates))
            progress.update(bar, advance=1)
    return outcomes


def register_one(engine: Engine, store: ModelStore, folder: Path, *, activates: bool) -> RegistrationOutcome:
    """Register an artifact for the link it names, and make it the active one if that is wanted."""
    link_id = None
    try:
        link_id = _link_id(folder)
        link = link_named(engine, link_id)
        with writing(engine) as session:
            registered = register_model(session, store, link, folder)
            if activates:
                activate(session, store, link, registered.version)
    except Problem as problem:
        return RegistrationOutcome(str(folder), link_id, "refused", reason=problem.detail)
    except (DamagedArtifact, OSError) as problem:
        return RegistrationOutcome(str(folder), link_id, "refused", reason=str(problem))
    state = "added" if registered.new else "there"
    return RegistrationOutcome(str(folder), link_id, state, registered.version, activates)


def tell(outcomes: Iterable[RegistrationOutcome]) -> None:
    """Print what was refused, and how many were not."""
    states = []
    for outcome in outcomes:
        states.append(outcome.state)
        if outcome.state == "refused":
            message = f"{outcome.folder}: {outcome.reason}"
            notes.print(escape(message), style="red", soft_wrap=True)
    added, there, refused = (states.count(state) for state in ("added", "there", "refused"))
    notes.print(f"registry: {added} added, {there} already there, {refused} refused")


def link_named(engine: Engine, link_id: str) -> LinkInfo:
    """Return a link, or the problem that it does not exist."""
    with reading(engine) as session:
        link = links_by_id(session, [link_id]).get(link_id)
    if link is None:
        raise no_link(link_id)
    return link


def _link_id(folder: Path) -> str:
    contents = read_artifact(folder, verify=False).manifest["contents"]
    with suppress(TypeError, KeyError):
        if isinstance(link_id := contents["about"]["link_id"], str):
            return link_id
    raise DamagedArtifact(folder, "it does not say which link it is for")
