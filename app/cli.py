"""The ``flowcast`` command."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.counts.importers import CountFileError, ImportReport, open_counts
from app.counts.series import LinkSeries, gather
from app.demo.city import links_geojson, sample_city, write_csv
from app.slots import SlotGrid
from app.train import LinkOutcome, train_links
from model.training import TrainingPlan

cli = typer.Typer(help="Forecast the traffic on every road link of a city.", add_completion=False)
notes = Console(stderr=True, highlight=False)
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


@cli.callback(invoke_without_command=True)
def flowcast(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Forecast the traffic on every road link of a city, from the counts its detectors already send."""
    if show_version:
        typer.echo(f"flowcast {version('flowcast')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cli.command("train")
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
        notes.print(f"flowcast train: {escape(str(problem))}", style="red", soft_wrap=True)
        raise typer.Exit(REFUSED) from None
    outcomes: list[LinkOutcome] = []
    try:
        with _progress() as progress:
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


@cli.command("sample-city")
def sample_city_command(
    output: Annotated[Path, typer.Option(help="CSV file to write; .gz compresses.")],
    links: Annotated[int, typer.Option(help="How many links.")] = 12,
    days: Annotated[int, typer.Option(help="How many days.")] = 28,
    seed: Annotated[int, typer.Option(help="Another seed gives another city.")] = 0,
    geojson: Annotated[Path | None, typer.Option(help="Write the links there, as GeoJSON.")] = None,
) -> None:
    """Write the sample city's synthetic counts in Flowcast's own layout."""
    try:
        city = sample_city(links=links, days=days, seed=seed)
        write_csv(city, output)
        if geojson is not None:
            geojson.write_text(json.dumps(links_geojson(city)))
    except (ValueError, OSError) as problem:
        notes.print(f"flowcast sample-city: {escape(str(problem))}", style="red", soft_wrap=True)
        raise typer.Exit(REFUSED) from None
    notes.print(f"{len(city.links)} links, {days} days, synthetic: {output}")
    for event in city.events:
        notes.print(f"  {event.kind}: {escape(event.description)}", soft_wrap=True)


def read_links(files: list[str], layout: str, zone: str | None, grid: SlotGrid) -> dict[str, LinkSeries]:
    """Read all files into one series a link, and say file by file what was read."""
    readers = [open_counts(file, layout=layout, zone=zone, grid=grid) for file in files]
    try:
        links = gather(*readers)
    finally:
        for file, reader in zip(files, readers, strict=True):
            reader.close()
            _print_report(file, reader.report)
    for file, reader in zip(files, readers, strict=True):
        if reader.report.refused > reader.report.counts:
            raise CountFileError(f"{file}: more values were refused than taken; is the format or slot length another?")
    if not links:
        raise CountFileError(f"there are no counts in {', '.join(files)}")
    return links


def _print_report(file: str, report: ImportReport) -> None:
    parts = f"{report.counts:,} counts ({report.suspect:,} suspect) + {report.gaps:,} gaps + {report.refused:,} refused"
    said = f"{file}: {report.layout}, {report.rows:,} rows, {report.values:,} values = {parts}"
    notes.print(escape(said), soft_wrap=True)
    for reason, n in report.reasons.most_common(5):
        notes.print(f"  {n:,} refused: {escape(reason)}", soft_wrap=True)


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


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=notes, transient=True)


def main() -> None:
    """Run the command line."""
    cli()
