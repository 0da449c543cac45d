"""``flowcast train``: links from files or from the database become artifacts, and versions in the registry."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from sqlalchemy import Engine

from app.commands.console import FAILED, AsJson, NetworkProgress, notes, out, progress_bar, refuse
from app.commands.count_files import ColumnMap, LayoutOption, OnlyLink, SlotMinutes, Zone, file_opener, read_network
from app.commands.database import current_database, read_settings
from app.commands.models import RegistrationOutcome, print_outcomes, register
from app.core.database import reading
from app.core.errors import no_link
from app.core.times import SECONDS_A_DAY
from app.counts.importers.record import CountFileError
from app.counts.queries import newest_slots
from app.counts.series import LinkSeries, stored_series
from app.links.queries import LinkInfo, all_links, links_by_id
from app.registry.register import mismatch
from app.registry.store import open_store
from app.training.aligned_counts import LinkTopology, read_topology
from app.training.network_stage import ALGORITHMS as NETWORK_ALGORITHMS
from app.training.network_stage import NetworkTraining
from app.training.train_links import LinkOutcome, train_links
from model.link_model.trained_model import ALGORITHMS as LINK_ALGORITHMS
from model.link_model.training_plan import TrainingPlan
from model.network_model.context import ContextParts

KNOWN_ALGORITHMS = (*NETWORK_ALGORITHMS, *LINK_ALGORITHMS)


@dataclass(frozen=True)
class TrainingInput:
    """Links to train and their number; ``beside`` are links of the same networks, to be learnt from only."""

    links: Iterable[LinkSeries]
    n: int
    topology: dict[str, LinkTopology]
    n_left_out: int = 0
    beside: Iterable[LinkSeries] = ()


def train_command(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Count files, also .gz and .zip; - for stdin.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the artifacts, one per link; with --register it may be left out.")
    ] = None,
    algorithm: Annotated[str, typer.Option(help=f"What to train: {', '.join(KNOWN_ALGORITHMS)}.")] = "best",
    lags: Annotated[int, typer.Option(help="Past slots that a forecast looks at.")] = 45,
    neighbors: Annotated[int, typer.Option(help="Neighbours that a forecast is made from.")] = 20,
    held_out_days: Annotated[
        int, typer.Option(help="Last days, held out to choose parameters and measure accuracy.")
    ] = 7,
    context: Annotated[
        str | None,
        typer.Option(
            help=f"Parts of the context, comma-separated, for NETWORK and best: {', '.join(ContextParts().names)}. "
            "All unless some are named."
        ),
    ] = None,
    layout: LayoutOption = "auto",
    zone: Zone = None,
    slot_minutes: SlotMinutes = 15,
    column_map: ColumnMap = None,
    link: OnlyLink = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one per core.")] = -1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep links that were trained on the same counts already.")
    ] = False,
    registers: Annotated[bool, typer.Option("--register", help="Put the models into the service's registry.")] = False,
    activates: Annotated[
        bool, typer.Option("--activate", help="Make the registered models active; with --register.")
    ] = False,
    from_database: Annotated[
        bool, typer.Option("--from-database", help="Learn from the service's stored counts instead of files.")
    ] = False,
    links: Annotated[str | None, typer.Option(help="Ids of links, comma-separated; with --from-database.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Last days to learn from; with --from-database.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model for every link in the files, or in the database.

    Example:

        flowcast train counts.csv.gz --output models
        flowcast train --from-database --register --activate
    """
    try:
        plan = _plan(algorithm, lags, neighbors, held_out_days, days, context)
        open_file = file_opener(layout, zone, slot_minutes, column_map, link)
        if jobs == 0:
            raise ValueError("jobs=0 is refused; it must be a number of processes, or -1 for one per core")
        if bool(files) == from_database:
            raise ValueError("give count files or --from-database, and not both")
        if output is None and not registers:
            raise ValueError("--output is needed, unless --register puts the models into the registry")
        if activates and not registers:
            raise ValueError("--activate needs --register")
        if not from_database and (links is not None or days is not None):
            raise ValueError("--links and --days need --from-database")
    except ValueError as problem:
        refuse("train", problem)
    outcomes: list[LinkOutcome] = []
    registered: list[RegistrationOutcome] = []
    with ExitStack() as stack:
        engine = add = None
        if registers or from_database:
            settings = read_settings("train")
            engine = stack.enter_context(current_database("train", settings))
            if registers:
                add = partial(register, engine, open_store(settings), activates=activates)
        try:
            folder = output or Path(stack.enter_context(TemporaryDirectory(prefix="flowcast-train-")))
            folder.mkdir(parents=True, exist_ok=True)
            if engine is not None and from_database:
                given = _stored(engine, None if links is None else _names(links), days)
            else:
                series, topology = read_network(files or [], open_file)
                given = TrainingInput(series.values(), len(series), topology)
                if engine is not None:
                    given = _registrable(engine, series)
        except (CountFileError, ValueError, OSError) as problem:
            refuse("train", problem)
        try:
            with progress_bar() as progress:
                bar = progress.add_task("training", total=given.n)
                trained = train_links(
                    given.links,
                    folder,
                    plan,
                    topology=given.topology,
                    beside=given.beside,
                    jobs=jobs,
                    resume=resume,
                    report=NetworkProgress(progress).report,
                )
                for outcome in trained:
                    outcomes.append(outcome)
                    if add is not None and outcome.state != "failed":  # at once: an interruption keeps what is done
                        registered += map(add, outcome.artifacts(folder).values())
                    progress.update(bar, advance=1, description=f"trained {escape(outcome.link_id)}")
                    if not notes.is_terminal and len(outcomes) % 10 == 0:
                        notes.print(f"{len(outcomes)} of {given.n} links done")
        except KeyboardInterrupt:
            rest = f"{len(registered)} of them are in the registry" if engine else "--resume continues"
            notes.print(f"interrupted: {len(outcomes)} of {given.n} links are done; {rest}")
            raise
    outcomes.sort(key=lambda outcome: outcome.link_id)
    if as_json:
        documents = [asdict(outcome) for outcome in outcomes]
        if registers:
            by_link = {outcome.link_id: asdict(outcome) for outcome in reversed(registered)}  # the best of each
            documents = [document | {"shelf": by_link.get(document["link_id"])} for document in documents]
        typer.echo(json.dumps(documents, indent=2))
    else:
        print_summary(outcomes)
    if registers:
        print_outcomes(registered)
    refused = any(outcome.state == "refused" for outcome in registered)
    if refused or given.n_left_out or all(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(FAILED)


def _plan(
    algorithm: str, lags: int, neighbors: int, held_out_days: int, days: int | None, context: str | None
) -> TrainingPlan | NetworkTraining:
    """Return how to train; raise ``ValueError`` for an option that is refused."""
    if algorithm not in NETWORK_ALGORITHMS:
        if algorithm not in LINK_ALGORITHMS:
            known = ", ".join(KNOWN_ALGORITHMS)
            raise ValueError(f"algorithm={algorithm!r} is refused; it must be one of {known}")
        if context is not None:
            raise ValueError(f"context={context!r} is refused; only the algorithms NETWORK and best have it")
        return TrainingPlan(algorithm=algorithm, lags=lags, n_neighbors=neighbors, held_out_days=held_out_days)
    given: dict[str, Any] = {"lags": lags, "n_neighbors": neighbors, "held_out_days": held_out_days, "days": days}
    given["context"] = None if context is None else _names(context)
    return NetworkTraining.of(algorithm, given, read_settings("train").holidays)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _stored(engine: Engine, link_ids: Collection[str] | None, days: int | None) -> TrainingInput:
    """Return the stored counts of links, or of all, each link's last days or everything."""
    with reading(engine) as session:
        every = {link.link_id: link for link in all_links(session)}
        if missing := sorted(set(link_ids or ()) - set(every)):
            raise no_link(missing[0])
        wanted = every if link_ids is None else {link_id: every[link_id] for link_id in link_ids}
        newest = newest_slots(session, [link.link_key for link in every.values()])
        topology = read_topology(session, list(every.values()))
    links = [link for link in wanted.values() if link.link_key in newest]
    networks = {(link.zone_name, link.slot_minutes) for link in links}
    beside = [
        link
        for link in every.values()
        if link.link_id not in wanted and link.link_key in newest and (link.zone_name, link.slot_minutes) in networks
    ]
    for link_id in sorted(set(wanted) - {link.link_id for link in links}):
        notes.print(escape(f"link {link_id!r} has no counts and is left out"), soft_wrap=True)
    if not links:
        raise ValueError("there are no counts in the database")

    def read(link: LinkInfo) -> LinkSeries:
        first = None if days is None else newest[link.link_key] + link.slot_seconds - days * SECONDS_A_DAY
        with reading(engine) as session:
            return stored_series(session, link, first)

    # One at a time, when a process is free to train it; joblib reads them in several threads.
    return TrainingInput(map(read, links), len(links), topology, len(wanted) - len(links), map(read, beside))


def _registrable(engine: Engine, series: dict[str, LinkSeries]) -> TrainingInput:
    """Keep the links of files that could go into the registry, and print why the others could not."""
    with reading(engine) as session:
        known = links_by_id(session, list(series))
        topology = read_topology(session, list(known.values()))
    kept = []
    for one in series.values():
        link = known.get(one.link_id)
        problem = no_link(one.link_id) if link is None else mismatch(link, one.zone.key, one.grid.slot_minutes)
        if problem is None:
            kept.append(one)
        else:
            notes.print(escape(f"left out: {problem}"), style="red", soft_wrap=True)
    if not kept:
        raise ValueError("none of the links in the files can go into the registry")
    return TrainingInput(kept, len(kept), topology, len(series) - len(kept))


def print_summary(outcomes: list[LinkOutcome]) -> None:
    """Print one line a link: how good it was on the held-out days, beside others."""
    table = Table(title="RMSE one slot ahead on the held-out days")
    for heading in ("link", "", "model", "KR", "profile", "last week", "within 90 %", "rank", "suspect", "s"):
        table.add_column(heading, justify="left" if heading in ("link", "") else "right")
    for outcome in outcomes:
        if outcome.about is None:
            table.add_row(escape(outcome.link_id), f"[red]failed[/]: {escape(outcome.reason)}")
            continue
        held = outcome.about["held_out"]
        errors = [_figure(held, method, "rmse") for method in ("candidate", "KR", "profile", "last_week")]
        rank, suspect = outcome.about["rank"], outcome.about["suspect"]
        cells = [*errors, _figure(held, "candidate", "coverage", 100, " %"), f"{rank}", f"{suspect}"]
        table.add_row(escape(outcome.link_id), outcome.state, *cells, f"{outcome.seconds:.1f}")
    out.print(table)
    states = [outcome.state for outcome in outcomes]
    out.print(f"{states.count('trained')} trained, {states.count('kept')} kept, {states.count('failed')} failed")


def _figure(held: dict[str, Any], method: str, measure: str, scale: float = 1, unit: str = "") -> str:
    """Return a held-out figure as text; a young link has none."""
    value = held.get(method, {}).get(measure, {}).get("value")
    return "-" if value is None else f"{scale * value:.1f}{unit}"
