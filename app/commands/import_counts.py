"""``flowcast import``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from app.commands.console import FAILED, INTERRUPTED, REFUSED, notes, out, refuse
from app.commands.count_files import ColumnMap, FileOptions, OnlyLink
from app.commands.service import current_database, settings_or_refuse
from app.core.errors import Problem
from app.core.slots import EPOCH
from app.counts.import_file import import_file
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from app.counts.importers.spool import Note, Spool
from app.counts.ingest import IngestContext
from app.counts.schemas import ImportedFile
from app.server.resources import open_resources
from app.settings import Settings

FEW_LINKS = 20
TOTALS = ("layout", "rows", "values", "counts", "suspect", "imputed", "gaps", "refused")
STORED = ("stored", "replaced", "unchanged", "repeated", "links_created", "unknown_links", "forecasts_issued")


@dataclass
class LinkTally:
    """How many counts a link has, and from which slot to which; None where there are none."""

    link_id: str
    name: str
    zone: str | None
    counts: int = 0
    first_slot: str | None = None
    last_slot: str | None = None


@dataclass
class FileTally:
    """What one file holds and what became of it."""

    file: str
    reader: CountReader
    stored: ImportedFile | None = None  # None on a dry run

    def links(self) -> list[LinkTally]:
        """Sum up each link."""
        spans = self.reader.report.spans
        links = [
            LinkTally(link.link_id, link.name, link.zone.key if link.zone else None)
            for link in self.reader.links.values()
        ]
        for link in links:
            if link.link_id in spans:
                first, last, link.counts = spans[link.link_id]
                link.first_slot, link.last_slot = _start(first), _start(last)
        return sorted(links, key=lambda link: link.link_id)

    def slots(self) -> tuple[str | None, str | None]:
        """First and last slot with a count."""
        spans = self.reader.report.spans.values()
        return (_start(min(spans)[0]), _start(max(last for _, last, _ in spans))) if spans else (None, None)


def print_tally(tally: FileTally, refusals: int) -> None:
    """Print what became of a file's values, its links if they are few, and its refused rows."""
    report, links, (first, last) = tally.reader.report, tally.links(), tally.slots()
    taken = f"{report.counts:,} counts ({report.suspect:,} suspect, {report.imputed:,} imputed)"
    lines = [
        f"{tally.file}: {report.layout}",
        f"  {report.rows:,} rows, {report.values:,} values = "
        f"{taken} + {report.gaps:,} gaps + {report.refused:,} refused",
        f"  {len(links):,} links, " + (f"slots {first} to {last}" if first else "no counts"),
        *(f"  {note}" for note in report.notes),
        *_stored_lines(tally.stored),
        *(f"  {n:,} suspect: {reason}" for reason, n in report.suspects.most_common()),
        *(f"  {n:,} refused: {reason}" for reason, n in report.reasons.most_common()),
        *(f"  {refusal}" for refusal in report.refusals[:refusals]),
    ]
    if unlisted := report.refused - sum(refusal.values for refusal in report.refusals[:refusals]):
        lines.append(f"  {unlisted:,} refused values are not listed")
    out.print(escape("\n".join(lines)), soft_wrap=True)
    if 0 < len(links) <= FEW_LINKS:
        table = Table("link", "name", "zone", "counts", "first slot", "last slot")
        for link in links:
            cells = (
                link.link_id,
                link.name,
                link.zone or "-",
                f"{link.counts:,}",
                link.first_slot or "-",
                link.last_slot or "-",
            )
            table.add_row(*map(escape, cells))
        out.print(table)


def _start(seconds: int) -> str:
    return f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%MZ}"


def _stored_lines(stored: ImportedFile | None) -> list[str]:
    if stored is None:
        return []
    lines = [
        f"  stored: {stored.stored:,} new, {stored.replaced:,} replaced, {stored.unchanged:,} unchanged, "
        f"{stored.repeated:,} replaced by a later one of the file; {stored.links_created:,} links created, "
        f"{stored.forecasts_issued:,} with a new forecast"
    ]
    if unknown := stored.unknown_links:
        lines.append(f"  links that do not exist (--create-links makes them): {', '.join(unknown)}")
    return lines


def as_document(tally: FileTally, refusals: int) -> dict[str, Any]:
    """Return the same as JSON."""
    report, (first, last) = tally.reader.report, tally.slots()
    totals = {name: getattr(report, name) for name in TOTALS}
    return {
        "file": tally.file,
        "error": None,
        **totals,
        "first_slot": first,
        "last_slot": last,
        "notes": report.notes,
        "reasons": dict(report.reasons),
        "suspects": dict(report.suspects),
        "refusals": [refusal._asdict() | {"line": refusal.line or None} for refusal in report.refusals[:refusals]],
        "links": [asdict(link) for link in tally.links()],
        **({} if tally.stored is None else {name: getattr(tally.stored, name) for name in STORED}),
    }


LONG_FILE = 2_000_000  # bytes; about a second of reading
MORE_REFUSED = "more values were refused than taken; is the format or slot length another?"


Take = Callable[[CountReader, Note], ImportedFile | None]


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Count files, also .gz and .zip; - for stdin.")],
    layout: Annotated[str, typer.Option("--format", help="Layout of the files; auto recognises it.")] = "auto",
    zone: Annotated[
        str | None, typer.Option(help="IANA time zone of new links, and of local times in the files.")
    ] = None,
    slot_minutes: Annotated[int, typer.Option(help="Slot length of links that do not exist yet, in minutes.")] = 15,
    column_map: ColumnMap = None,
    link: OnlyLink = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and report; no database is needed.")] = False,
    create_links: Annotated[bool, typer.Option("--create-links", help="Create links that do not exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    refusals: Annotated[int, typer.Option(help="Refused rows to list for each file, of 100 kept.")] = 20,
) -> None:
    """Store the counts of files, each file whole or not at all, and report what was taken, refused and missing.

    The slot length of a file is detected. Rows shorter than a link's slots are summed; a file with
    longer rows, or with rows off the grid, is refused whole. --map and --link read any CSV:

        flowcast import a.csv --map slot_start=Time,count=Vol --link A7 --zone Europe/Berlin
    """
    try:
        if refusals < 0:
            raise ValueError(f"refusals={refusals} is refused; it must be 0 or more")
        options = FileOptions.parse(layout, zone, slot_minutes, column_map, link)
    except ValueError as problem:
        refuse("import", problem)
    code = 0
    documents: list[dict[str, Any]] = []
    try:
        with ExitStack() as stack:
            settings = settings_or_refuse("import")
            most = settings.max_unpacked_megabytes << 20
            take = only_read if dry_run else _storing(stack, settings, create_links)
            for file in files:
                try:
                    tally = read_file(file, options, take, most)
                except (CountFileError, Problem) as problem:
                    code = REFUSED
                    notes.print(f"flowcast import: {escape(str(problem))}", style="red", soft_wrap=True)
                    documents.append({"file": file, "error": str(problem)})
                    continue
                if as_json:
                    documents.append(as_document(tally, refusals))
                else:
                    print_tally(tally, refusals)
                if tally.reader.report.refused > tally.reader.report.counts:
                    code = max(code, FAILED)
                    notes.print(escape(f"{file}: {MORE_REFUSED}"), style="red", soft_wrap=True)
    except KeyboardInterrupt:
        notes.print("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
    raise typer.Exit(code)


def read_file(file: str, options: FileOptions, take: Take, most_unpacked: int) -> FileTally:
    """Read a file to its end, and pass its counts to ``take``."""
    with options.open(file, most_unpacked) as reader, _status(file) as status:

        def note(text: str) -> None:
            if status:
                status.update(f"{escape(file)}: {text}")

        return FileTally(file, reader, take(reader, note))


def only_read(reader: CountReader, note: Note) -> None:
    """Read the counts and sum them into slots, without a database."""
    with Spool(reader) as spool:
        spool.read(note)
        spool.sum_into_slots()


def _storing(stack: ExitStack, settings: Settings, create_links: bool) -> Take:
    """Open the service's database for counts to go in."""
    stack.enter_context(current_database("import", settings))
    opened = open_resources(settings)
    stack.callback(opened.close)
    context = IngestContext(settings, opened.engine, opened.clock, opened.forecast_cache.issue)

    def store(reader: CountReader, note: Note) -> ImportedFile:
        return import_file(context, reader, create_links=create_links, note=note)

    return store


@contextmanager
def _status(file: str) -> Iterator[Status | None]:
    try:
        long = file == "-" or Path(file).stat().st_size > LONG_FILE
    except OSError:
        long = False
    with notes.status(f"reading {escape(file)}") if long and notes.is_terminal else nullcontext() as status:
        yield status
