"""``flowcast train``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.commands.console import FAILED, INTERRUPTED, notes, out, progress_bar, refuse
from app.commands.count_files import read_links
from app.counts.importers import CountFileError
from app.slots import SlotGrid
from app.train import LinkOutcome, train_links
from model.training import TrainingPlan


def train_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Count files, also .gz and .zip; - for stdin.")],
    output: Annotated[Path, typer.Option(help="Folder for the artifacts, one a link.")],
    algorithm: Annotated[str, typer.Option(help="KR_SML, MLKR, KR or KR_PCA.")] = "KR_SML",
    lags: Annotated[int, typer.Option(help="Past slots a forecast looks at.")] = 45,
    neighbors: Annotated[int, typer.Option(help="Neighbours a forecast is made of.")] = 20,
    held_out_days: Annotated[int, typer.Option(help="Last days that choose and judge.")] = 7,
    layout: Annotated[str, typer.Option("--format", help="Layout of the files; auto recognises it.")] = "auto",
    zone: Annotated[str | None, typer.Option(help="IANA time zone of the links.")] = None,
    slot_minutes: Annotated[int, typer.Option(help="Length of a slot, in minutes.")] = 15,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = -1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep links already trained on the same counts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train a model for every link in the files."""
    try:
        plan = TrainingPlan(algorithm=algorithm, lags=lags, n_neighbors=neighbors, held_out_days=held_out_days)
        if jobs == 0:
            raise ValueError("jobs=0 is refused; it must be a number of processes, or -1 for one a core")
        output.mkdir(parents=True, exist_ok=True)
        links = read_links(files, layout, zone, SlotGrid(slot_minutes))
    except (CountFileError, ValueError, OSError) as problem:
        refuse("train", problem)
    outcomes: list[LinkOutcome] = []
    try:
        with progress_bar() as progress:
            bar = progress.add_task("training", total=len(links))
            for outcome in train_links(links.values(), output, plan, jobs=jobs, resume=resume):
                outcomes.append(outcome)
                progress.update(bar, advance=1, description=f"trained {escape(outcome.link_id)}")
                if not notes.is_terminal and len(outcomes) % 10 == 0:
                    notes.print(f"{len(outcomes)} of {len(links)} links done")
    except KeyboardInterrupt:
        notes.print(f"interrupted: {len(outcomes)} of {len(links)} links are done; --resume goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    outcomes.sort(key=lambda outcome: outcome.link_id)
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        print_summary(outcomes)
    if all(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(FAILED)


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
        errors = [_shown(held[method]["rmse"]["value"]) for method in ("candidate", "KR", "profile", "last_week")]
        inside = held["candidate"]["coverage"]["value"]
        rank, suspect = outcome.about["rank"], outcome.about["suspect"]
        cells = [*errors, _shown(None if inside is None else 100 * inside, " %"), f"{rank}", f"{suspect}"]
        table.add_row(escape(outcome.link_id), outcome.state, *cells, f"{outcome.seconds:.1f}")
    out.print(table)
    states = [outcome.state for outcome in outcomes]
    out.print(f"{states.count('trained')} trained, {states.count('kept')} kept, {states.count('failed')} failed")


def _shown(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.1f}{unit}"
