"""``flowcast import``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.status import Status

from app.commands.console import FAILED, INTERRUPTED, REFUSED, notes, refuse
from app.commands.count_files import ColumnMap, FileOptions, OnlyLink
from app.commands.current_schema import current_database
from app.commands.import_tally import FileTally, as_document, print_tally
from app.commands.service import settings_or_refuse
from app.core.errors import Problem
from app.core.slots import SlotGrid
from app.counts.import_file import import_and_issue
from app.counts.import_spool import Spool
from app.counts.importers import CountFileError, CountReader, ImportedCount, ImportedLink, ImportReport
from app.counts.importers.slot_sums import ReadPart
from app.counts.ingest_context import IngestContext
from app.counts.schemas import ImportedFile
from app.server.resources import open_resources
from app.settings import Settings

LONG_FILE = 2_000_000  # bytes; about a second of reading
ROWS_BETWEEN_NOTES = 5_000
MORE_REFUSED = "more values were refused than taken; is the format or slot length another?"


class Watched:
    """A file's counts, with progress shown while they are read and stored."""

    def __init__(self, file: str, reader: CountReader, status: Status | None) -> None:
        self._file, self._reader, self._status = file, reader, status

    @property
    def grid(self) -> SlotGrid:
        """The grid of links that have no slot length of their own."""
        return self._reader.grid

    @property
    def links(self) -> dict[str, ImportedLink]:
        """The links seen so far."""
        return self._reader.links

    @property
    def report(self) -> ImportReport:
        """What was read so far."""
        return self._reader.report

    @property
    def parts(self) -> list[ReadPart]:
        """The files read so far."""
        return self._reader.parts

    def __iter__(self) -> Iterator[ImportedCount]:
        shown = 0
        for count in self._reader:
            if self._status and self.report.rows >= shown + ROWS_BETWEEN_NOTES:
                shown = self.report.rows
                self._status.update(f"{escape(self._file)}: {shown:,} rows")
            yield count

    def note(self, done: int, of: int) -> None:
        """Show how far storing is."""
        if self._status:
            self._status.update(f"{escape(self._file)}: {done:,} of {of:,} counts stored")


Take = Callable[[Watched], ImportedFile | None]


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
        return FileTally(file, reader, take(Watched(file, reader, status)))


def only_read(counts: Watched) -> None:
    """Read the counts and sum them into slots, without a database."""
    with Spool(counts) as spool:
        spool.read()
        spool.sum_into_slots()


def _storing(stack: ExitStack, settings: Settings, create_links: bool) -> Take:
    """Open the service's database for counts to go in."""
    stack.enter_context(current_database("import", settings))
    opened = open_resources(settings)
    stack.callback(opened.close)
    context = IngestContext(settings, opened.engine, opened.clock, opened.forecast_cache.issue)

    def store(counts: Watched) -> ImportedFile:
        return import_and_issue(context, counts, create_links=create_links, dry_run=False, note=counts.note)

    return store


@contextmanager
def _status(file: str) -> Iterator[Status | None]:
    try:
        long = file == "-" or Path(file).stat().st_size > LONG_FILE
    except OSError:
        long = False
    with notes.status(f"reading {escape(file)}") if long and notes.is_terminal else nullcontext() as status:
        yield status
