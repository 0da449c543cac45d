"""Count files as arguments of a command: the options they are read by, and what was read, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.markup import escape

from app.commands.console import notes
from app.core.slots import SlotGrid, zone_named
from app.counts.importers.columns import Columns
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError, ImportReport
from app.counts.series import LinkSeries, series_of_files
from app.training.aligned_counts import LinkTopology

ColumnMap = Annotated[
    str | None,
    typer.Option(
        "--map", help="Columns of a CSV file by other names, such as link_id=Detector,slot_start=Time,count=Vol."
    ),
]
OnlyLink = Annotated[str | None, typer.Option("--link", help="Id of the only link of a file without a link column.")]


@dataclass(frozen=True)
class FileOptions:
    """How the files of a command are to be read."""

    layout: str
    zone: ZoneInfo | None
    grid: SlotGrid
    columns: Columns

    @classmethod
    def parse(
        cls, layout: str, zone: str | None, slot_minutes: int, column_map: str | None, link: str | None
    ) -> FileOptions:
        """Check options as they were given; raise ``ValueError`` for one that is refused."""
        return cls(layout, zone_named(zone) if zone else None, SlotGrid(slot_minutes), Columns.parse(column_map, link))

    def open(self, file: str, most_unpacked: int | None = None) -> CountReader:
        """Open a file."""
        return CountReader(
            file,
            layout=self.layout,
            zone=self.zone,
            grid=self.grid,
            most_unpacked=most_unpacked,
            columns=self.columns,
        )


def read_network(files: list[str], options: FileOptions) -> tuple[dict[str, LinkSeries], dict[str, LinkTopology]]:
    """Read all files into one series a link, and what they know of where the links are."""
    readers = [options.open(file) for file in files]
    try:
        links = series_of_files(*readers)
    finally:
        for file, reader in zip(files, readers, strict=True):
            reader.close()
            print_report(file, reader.report)
    for file, reader in zip(files, readers, strict=True):
        if reader.report.refused > reader.report.counts:
            raise CountFileError(f"{file}: more values were refused than taken; is the format or slot length another?")
    if not links:
        raise CountFileError(f"there are no counts in {', '.join(files)}")
    whereabouts = {
        link_id: LinkTopology({"type": "Point", "coordinates": [link.longitude, link.latitude]})
        for reader in readers
        for link_id, link in reader.links.items()
        if link.longitude is not None and link.latitude is not None
    }
    return links, whereabouts


def print_report(file: str, report: ImportReport) -> None:
    """Print what became of a file's values, and the commonest reasons for refusals."""
    kinds = f"{report.suspect:,} suspect, {report.imputed:,} imputed"
    parts = f"{report.counts:,} counts ({kinds}) + {report.gaps:,} gaps + {report.refused:,} refused"
    line = f"{file}: {report.layout}, {report.rows:,} rows, {report.values:,} values = {parts}"
    notes.print(escape(line), soft_wrap=True)
    for note in report.notes:
        notes.print(f"  {escape(note)}", soft_wrap=True)
    for reason, n in report.reasons.most_common(5):
        notes.print(f"  {n:,} refused: {escape(reason)}", soft_wrap=True)
