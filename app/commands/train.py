"""``flowcast train``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from sqlalchemy import Engine

from app.commands.console import FAILED, INTERRUPTED, notes, out, progress_bar, refuse
from app.commands.count_files import ColumnMap, FileOptions, OnlyLink, read_network
from app.commands.progress import NetworkProgress
from app.commands.registration import RegistrationOutcome, register_one, tell
from app.commands.service import current_database, settings_or_refuse
from app.commands.training_work import TrainingWork, known_work, stored_work
from app.counts.importers.record import CountFileError
from app.links.folders import folder_name
from app.registry.store import open_store
from app.training.network_stage import ALGORITHMS as NETWORK_ALGORITHMS
from app.training.network_stage import NetworkTraining
from app.training.train_links import LinkOutcome, train_links
from model.link_model.trained_model import ALGORITHMS as ALONE
from model.link_model.training_plan import TrainingPlan


def as_documents(outcomes: list[LinkOutcome], registered: list[RegistrationOutcome] | None) -> list[dict[str, Any]]:
    """Return what became of each link, and its registered version if there is one, as JSON."""
    documents = [asdict(outcome) for outcome in outcomes]
    if registered is not None:
        by_link = {outcome.link_id: asdict(outcome) for outcome in registered}
        documents = [document | {"shelf": by_link.get(document["link_id"])} for document in documents]
    return documents


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
        errors = [_shown(_value(held, method, "rmse")) for method in ("candidate", "KR", "profile", "last_week")]
        inside = _value(held, "candidate", "coverage")
        rank, suspect = outcome.about["rank"], outcome.about["suspect"]
        cells = [*errors, _shown(None if inside is None else 100 * inside, " %"), f"{rank}", f"{suspect}"]
        table.add_row(escape(outcome.link_id), outcome.state, *cells, f"{outcome.seconds:.1f}")
    out.print(table)
    states = [outcome.state for outcome in outcomes]
    out.print(f"{states.count('trained')} trained, {states.count('kept')} kept, {states.count('failed')} failed")


def _value(held: dict[str, Any], method: str, measure: str) -> float | None:
    """Return a figure, of a young link None where there is none."""
    value = held.get(method, {}).get(measure, {}).get("value")
    return None if value is None else float(value)


def _shown(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.1f}{unit}"


def train_command(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Count files, also .gz and .zip; - for stdin.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the artifacts, one a link; with --register it may be left out.")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="best, NETWORK, KR_SML, MLKR, KR or KR_PCA.")] = "best",
    lags: Annotated[int, typer.Option(help="Past slots a forecast looks at.")] = 45,
    neighbors: Annotated[int, typer.Option(help="Neighbours a forecast is made of.")] = 20,
    held_out_days: Annotated[int, typer.Option(help="Last days that choose and judge.")] = 7,
    context: Annotated[
        str | None,
        typer.Option(help="Parts of the context, comma-separated, for NETWORK and best; all unless some are named."),
    ] = None,
    layout: Annotated[str, typer.Option("--format", help="Layout of the files; auto recognises it.")] = "auto",
    zone: Annotated[str | None, typer.Option(help="IANA time zone of the links.")] = None,
    slot_minutes: Annotated[int, typer.Option(help="Length of a slot, in minutes; shorter rows are summed.")] = 15,
    column_map: ColumnMap = None,
    link: OnlyLink = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = -1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep links already trained on the same counts.")] = False,
    register: Annotated[bool, typer.Option("--register", help="Put the models into the service's registry.")] = False,
    activates: Annotated[bool, typer.Option("--activate", help="And make them active; with --register.")] = False,
    from_database: Annotated[
        bool, typer.Option("--from-database", help="Learn from the service's stored counts instead of files.")
    ] = False,
    links: Annotated[str | None, typer.Option(help="Links, comma-separated; with --from-database.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Last days to learn from; with --from-database.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train a model for every link in the files, or in the database."""
    try:
        plan = _plan(algorithm, lags, neighbors, held_out_days, days, context)
        options = FileOptions.parse(layout, zone, slot_minutes, column_map, link)
        _check_options(files, output, jobs, register, activates, from_database, links, days)
    except ValueError as problem:
        refuse("train", problem)
    with ExitStack() as stack:
        registration = Registration(stack, activates) if register or from_database else None
        try:
            folder = output or Path(stack.enter_context(TemporaryDirectory(prefix="flowcast-train-")))
            folder.mkdir(parents=True, exist_ok=True)
            if registration is not None and from_database:
                work = stored_work(registration.engine, None if links is None else _names(links), days)
            else:
                series, whereabouts = read_network(files or [], options)
                work = (
                    known_work(registration.engine, series)
                    if registration
                    else TrainingWork(series.values(), len(series), topology=whereabouts)
                )
        except (CountFileError, ValueError, OSError) as problem:
            refuse("train", problem)
        outcomes = train_work(work, folder, plan, jobs, resume, registration if register else None)
    registered = [] if registration is None else registration.outcomes
    if as_json:
        typer.echo(json.dumps(as_documents(outcomes, registered if register else None), indent=2))
    else:
        print_summary(outcomes)
    if register:
        tell(registered)
    refused = any(outcome.state == "refused" for outcome in registered)
    if refused or work.left_out or all(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(FAILED)


class Registration:
    """The service's registry, open for a training run."""

    def __init__(self, stack: ExitStack, activates: bool) -> None:
        settings = settings_or_refuse("train")
        self.engine: Engine = stack.enter_context(current_database("train", settings))
        self._store, self._activates = open_store(settings), activates
        self.outcomes: list[RegistrationOutcome] = []

    def add(self, folder: Path) -> None:
        """Register one artifact."""
        self.outcomes.append(register_one(self.engine, self._store, folder, activates=self._activates))


def train_work(
    work: TrainingWork,
    folder: Path,
    plan: TrainingPlan | NetworkTraining,
    jobs: int,
    resume: bool,
    registration: Registration | None,
) -> list[LinkOutcome]:
    """Train links under a progress bar, and register each as it comes: an interruption keeps what is done."""
    outcomes: list[LinkOutcome] = []
    try:
        with progress_bar() as progress:
            bar = progress.add_task("training", total=work.n)
            bars = NetworkProgress(progress)
            trained = train_links(
                work.links,
                folder,
                plan,
                topology=work.topology,
                beside=work.beside,
                jobs=jobs,
                resume=resume,
                report=bars.report,
            )
            for outcome in trained:
                outcomes.append(outcome)
                if registration is not None and outcome.state != "failed":
                    registration.add(folder / folder_name(outcome.link_id))
                progress.update(bar, advance=1, description=f"trained {escape(outcome.link_id)}")
                if not notes.is_terminal and len(outcomes) % 10 == 0:
                    notes.print(f"{len(outcomes)} of {work.n} links done")
    except KeyboardInterrupt:
        rest = (
            "--resume goes on from here"
            if registration is None
            else f"{len(registration.outcomes)} of them are in the registry"
        )
        notes.print(f"interrupted: {len(outcomes)} of {work.n} links are done; {rest}")
        raise typer.Exit(INTERRUPTED) from None
    return sorted(outcomes, key=lambda outcome: outcome.link_id)


def _plan(
    algorithm: str, lags: int, neighbors: int, held_out_days: int, days: int | None, context: str | None
) -> TrainingPlan | NetworkTraining:
    """Return the options of training; the plan refuses unknown names."""
    if algorithm not in NETWORK_ALGORITHMS:
        if algorithm not in ALONE:
            known = ", ".join((*ALONE, *NETWORK_ALGORITHMS))
            raise ValueError(f"algorithm={algorithm!r} is refused; it must be one of {known}")
        if context is not None:
            raise ValueError(f"context={context!r} is refused; it concerns the algorithms NETWORK and best alone")
        return TrainingPlan(algorithm=algorithm, lags=lags, n_neighbors=neighbors, held_out_days=held_out_days)
    given: dict[str, Any] = {"lags": lags, "n_neighbors": neighbors, "held_out_days": held_out_days, "days": days}
    given["context"] = None if context is None else _names(context)
    return NetworkTraining.of(algorithm, given, settings_or_refuse("train").holidays)


def _check_options(
    files: list[str] | None,
    output: Path | None,
    jobs: int,
    register: bool,
    activates: bool,
    from_database: bool,
    links: str | None,
    days: int | None,
) -> None:
    if jobs == 0:
        raise ValueError("jobs=0 is refused; it must be a number of processes, or -1 for one a core")
    if bool(files) == from_database:
        raise ValueError("name count files, or give --from-database, one of the two")
    if output is None and not register:
        raise ValueError("--output is needed, unless --register puts the models into the registry")
    if activates and not register:
        raise ValueError("--activate needs --register")
    if not from_database and (links is not None or days is not None):
        raise ValueError("--links and --days need --from-database")


def _names(links: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in links.split(",") if name.strip()))
