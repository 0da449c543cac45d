"""``flowcast evaluate``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.commands.console import FAILED, NetworkProgress, notes, out, progress_bar, refuse
from app.commands.count_files import ColumnMap, LayoutOption, OnlyLink, SlotMinutes, Zone, file_opener, read_network
from app.counts.importers.record import CountFileError
from app.counts.series import LinkSeries
from app.evaluation.days import choose_links
from app.evaluation.evaluate import Evaluated, evaluate_links, make_report
from app.evaluation.measures import best_of, figures
from app.evaluation.network_methods import learn_networks
from app.evaluation.page import require_folder, write_report
from app.evaluation.plan import BEST, COMPARED, LEAST_TRAIN_DAYS, PROTOCOLS, EvaluationPlan
from app.evaluation.report import NotEvaluated, Report, Summary
from app.training.aligned_counts import LinkTopology

MOST_LISTED = 10


def evaluate_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Count files, also .gz and .zip; - for stdin.")],
    output: Annotated[Path, typer.Option(help="Folder for the report.")],
    train_days: Annotated[int, typer.Option(help=f"Local days to learn from, at least {LEAST_TRAIN_DAYS}.")] = 22,
    test_days: Annotated[int, typer.Option(help="Days after them to forecast.")] = 3,
    first_day: Annotated[
        str | None, typer.Option("--from", help="First day, YYYY-MM-DD; by default the first whole day of each link.")
    ] = None,
    links: Annotated[str | None, typer.Option(help="Link ids, separated by commas.")] = None,
    sample: Annotated[int | None, typer.Option(help="Draw so many of the links that can be evaluated.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws another sample.")] = 0,
    protocol: Annotated[
        str,
        typer.Option(
            help=f"Settings of the methods: {' or '.join(PROTOCOLS)}. paper: those of the paper, except for KR_SML; "
            "product: those of flowcast train."
        ),
    ] = "paper",
    neighbors: Annotated[
        int | None,
        typer.Option(help="k of KR, KR_PCA and MLKR, by default 8; with --protocol product of all four, 20."),
    ] = None,
    lags: Annotated[int, typer.Option(help="Past slots that a forecast looks at.")] = 45,
    layout: LayoutOption = "auto",
    zone: Zone = None,
    slot_minutes: SlotMinutes = 15,
    column_map: ColumnMap = None,
    link: OnlyLink = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one per core.")] = -1,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json for machines.")] = False,
) -> None:
    """Compare KR, KR_PCA, MLKR, KR_SML, the profile, NETWORK and best on every link in the files, in a report.

    Example:

        flowcast evaluate counts.csv.gz --output report
    """
    started = time.perf_counter()
    try:
        if absent := [name for name in ("matplotlib", "plotly") if find_spec(name) is None]:
            raise ValueError(f"{' and '.join(absent)} must be installed: pip install 'flowcast[reports]'")
        day = _day(first_day)
        plan = EvaluationPlan(train_days, test_days, day, protocol, neighbors, lags, links, sample, seed)
        if jobs == 0:
            raise ValueError("jobs=0 is refused; it must be a number of processes, or -1 for one per core")
        require_folder(output)
        open_file = file_opener(layout, zone, slot_minutes, column_map, link)
        series, topology = read_network(files, open_file)
        choice = choose_links(series, plan)
        _print_notes(choice.notes)
        if plan.held_out_reduced:
            notes.print(f"{plan.held_out_days} held-out days instead of 7: the training span is {plan.train_days} days")
        outcomes, network_notes = _evaluate(choice.links, plan, topology, jobs)
        choice.notes.extend(network_notes)
        seconds = time.perf_counter() - started
        report, pictures = make_report(files, plan, slot_minutes, choice, outcomes, seconds)
        if report.links:
            write_report(output, report, pictures)
    except (CountFileError, ValueError, OSError) as problem:
        refuse("evaluate", problem)
    except KeyboardInterrupt:
        notes.print("interrupted: no report was written")
        raise
    if as_json or not report.links:
        _print_left_out(notes, report.not_evaluated)
    if not report.links:
        notes.print("nothing could be evaluated; no report was written", style="red")
        raise typer.Exit(FAILED)
    if as_json:
        typer.echo(report.to_text())
    else:
        print_summary(report, output)


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"from={text!r} is refused; it must be a day such as 2006-10-01") from None


def _print_notes(texts: list[str]) -> None:
    for text in texts:
        notes.print(escape(text), soft_wrap=True)


def _evaluate(
    links: list[LinkSeries], plan: EvaluationPlan, topology: Mapping[str, LinkTopology], jobs: int
) -> tuple[list[Evaluated | NotEvaluated], list[str]]:
    """Evaluate links, their networks first, and show progress; return notes on the networks as well."""
    outcomes: list[Evaluated | NotEvaluated] = []
    with progress_bar() as progress, TemporaryDirectory(prefix="flowcast-evaluate-") as scratch:
        report = NetworkProgress(progress).report
        networks, network_notes = learn_networks(links, plan, topology, Path(scratch), report)
        bar = progress.add_task("evaluating", total=len(links))
        for outcome in evaluate_links(links, plan, networks, jobs=jobs):
            outcomes.append(outcome)
            name = outcome.result.link_id if isinstance(outcome, Evaluated) else outcome.link_id
            progress.update(bar, advance=1, description=f"evaluated {escape(name)}")
            if not notes.is_terminal:
                notes.print(f"{len(outcomes)} of {len(links)} links done")
    _print_notes(network_notes)
    return outcomes, network_notes


def _print_left_out(console: Console, links: list[NotEvaluated]) -> None:
    """Print which links could not be evaluated, and why."""
    for link in links[:MOST_LISTED]:
        console.print(f"not evaluated: {escape(link.link_id)}: {escape(link.reason)}", soft_wrap=True)
    if len(links) > MOST_LISTED:
        console.print(f"and {len(links) - MOST_LISTED} more")


def print_summary(report: Report, output: Path) -> None:
    """Print the best method, KR_SML's place and the links left out; then a table a measure, and where the report is."""
    for line in _headline(report.summary):
        out.print(line, soft_wrap=True)
    _print_left_out(out, report.not_evaluated)
    for measure, digits in (("rmse", 2), ("mare", 3)):
        out.print(_error_table(report, measure, digits))
    chosen = Counter(link.methods[COMPARED.index(BEST)].chosen for link in report.links)
    choices = ", ".join(f"{method} on {n}" for method, n in chosen.most_common())
    out.print(f"chosen by {BEST} on held-out training days: {choices}")
    out.print(f"report: {escape(str(output / 'report.html'))}", soft_wrap=True)


def _headline(summary: Summary) -> list[str]:
    """Return which method is the best over all links, which place KR_SML has, and how many links were left out."""
    total = "1 link" if summary.n_links == 1 else f"{summary.n_links} links"
    left_out = f"links left out: {summary.n_not_evaluated}"
    if not summary.ranking:
        return [f"no method has an error above zero to compare on {total}", left_out]
    means = {method.method: method.geometric_mean["test"]["rmse"] for method in summary.methods}
    best, place = summary.ranking[0], summary.ranking.index("KR_SML") + 1
    return [
        f"best method over {total}: {best}, test RMSE {means[best]:.2f} in geometric mean",
        f"KR_SML has place {place} of {len(summary.ranking)}, with {means['KR_SML']:.2f}",
        left_out,
    ]


def _error_table(report: Report, measure: str, digits: int) -> Table:
    """Return a table of a test error, a row a link and a column a method; the best of a row is bold and starred."""
    days = f"{report.options.train_days} + {report.options.test_days} days"
    table = Table(title=f"test {measure.upper()} one slot ahead, {days}")
    table.add_column("link")
    for method in COMPARED:
        table.add_column(method, justify="right")
    for link in report.links:
        values = figures(link, "test", measure)
        marks = best_of(values, measure, report.options.level)
        texts = ["-" if value is None else f"{value:.{digits}f}" for value in values]
        cells = [f"[bold]{text}*[/]" if best else text for text, best in zip(texts, marks, strict=True)]
        table.add_row(escape(link.link_id), *cells)
    return table
