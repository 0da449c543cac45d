"""Count files as arguments of a command: the options they are read by, and what was read, file by file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from app.commands.console import notes
from app.core.slots import SlotGrid, zone_named
from app.counts.importers.columns import MAP_EXAMPLE, Columns
from app.counts.importers.reader import AUTO, CountReader, layouts
from app.counts.importers.record import CountFileError, ImportReport
from app.counts.series import LinkSeries, series_of_files
from app.training.aligned_counts import LinkTopology

LayoutOption = Annotated[
    str,
    typer.Option(
        "--format", help=f"Layout of the files: {AUTO} (recognised by the first line), {', '.join(layouts())}."
    ),
]
Zone = Annotated[str | None, typer.Option(help="IANA time zone of the links.")]
SlotMinutes = Annotated[int, typer.Option(help="Length of a slot, in minutes; shorter rows are summed.")]
ColumnMap = Annotated[
    str | None,
    typer.Option("--map", help=f"Columns of a CSV file by other names, such as {MAP_EXAMPLE}."),
]
OnlyLink = Annotated[
    str | None,
    typer.Option(
        "--link", help="Id of the only link of a file without a link column: letters, digits and . _ : -, at most 64."
    ),
]

OpenFile = Callable[..., CountReader]
MORE_REFUSED = "more values were refused than accepted; check the format, the zone and the slot length"


def file_opener(layout: str, zone: str | None, slot_minutes: int, column_map: str | None, link: str | None) -> OpenFile:
    """Return a function that opens a file by these options; raise ``ValueError`` for one that is refused."""
    return partial(
        CountReader,
        layout=layout,
        zone=zone_named(zone) if zone else None,
        grid=SlotGrid(slot_minutes),
        columns=Columns.parse(column_map, link),
    )


def read_network(files: list[str], open_file: OpenFile) -> tuple[dict[str, LinkSeries], dict[str, LinkTopology]]:
    """Read all files; return one series a link, and the positions of links that the files have."""
    with ExitStack() as stack:
        readers = [stack.enter_context(open_file(file)) for file in files]
        try:
            links = series_of_files(*readers)
        finally:
            for file, reader in zip(files, readers, strict=True):
                print_report(file, reader.report)
    for file, reader in zip(files, readers, strict=True):
        if reader.report.refused > reader.report.counts:
            raise CountFileError(f"{file}: {MORE_REFUSED}")
    if not links:
        raise CountFileError(f"there are no counts in {', '.join(files)}")
    topology = {
        link_id: LinkTopology({"type": "Point", "coordinates": [link.longitude, link.latitude]})
        for reader in readers
        for link_id, link in reader.links.items()
        if link.longitude is not None and link.latitude is not None
    }
    return links, topology


def print_report(file: str, report: ImportReport) -> None:
    """Print what became of a file's values, and the commonest reasons for refusals."""
    lines = [
        f"{file}: {report.layout}, {totals(report)}",
        *(f"  {note}" for note in report.notes),
        *(f"  {n:,} refused: {reason}" for reason, n in report.reasons.most_common(5)),
    ]
    notes.print(escape("\n".join(lines)), soft_wrap=True)


def totals(report: ImportReport) -> str:
    """Return how many rows and values were read, and how many of the values are counts, gaps or refused."""
    return (
        f"{report.rows:,} rows, {report.values:,} values = {report.counts:,} counts "
        f"({report.suspect:,} suspect, {report.imputed:,} imputed) + {report.gaps:,} gaps + {report.refused:,} refused"
    )
