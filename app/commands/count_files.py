"""Count files as arguments of a command: read them, and say file by file what was read."""

from __future__ import annotations

from rich.markup import escape

from app.commands.console import notes
from app.counts.importers import CountFileError, ImportReport, open_counts
from app.counts.series import LinkSeries, gather
from app.network.gather import Whereabouts
from app.slots import SlotGrid


def read_network(
    files: list[str], layout: str, zone: str | None, grid: SlotGrid
) -> tuple[dict[str, LinkSeries], dict[str, Whereabouts]]:
    """Read all files into one series a link, and what they know of where the links are."""
    readers = [open_counts(file, layout=layout, zone=zone, grid=grid) for file in files]
    try:
        links = gather(*readers)
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
        link_id: Whereabouts({"type": "Point", "coordinates": [link.longitude, link.latitude]})
        for reader in readers
        for link_id, link in reader.links.items()
        if link.longitude is not None and link.latitude is not None
    }
    return links, whereabouts


def print_report(file: str, report: ImportReport) -> None:
    """Say what became of a file's values, and the commonest reasons for refusing some."""
    kinds = f"{report.suspect:,} suspect, {report.imputed:,} imputed"
    parts = f"{report.counts:,} counts ({kinds}) + {report.gaps:,} gaps + {report.refused:,} refused"
    said = f"{file}: {report.layout}, {report.rows:,} rows, {report.values:,} values = {parts}"
    notes.print(escape(said), soft_wrap=True)
    for reason, n in report.reasons.most_common(5):
        notes.print(f"  {n:,} refused: {escape(reason)}", soft_wrap=True)
