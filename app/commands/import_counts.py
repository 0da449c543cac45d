"""``flowcast import``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer
from rich.markup import escape
from rich.status import Status

from app.commands.console import FAILED, INTERRUPTED, REFUSED, notes, refuse
from app.commands.current_schema import current_database
from app.commands.import_tally import FileTally, as_document, print_tally
from app.commands.service import settings_or_refuse
from app.counts.import_file import import_and_issue
from app.counts.importers import CountFileError, ImportedCount, ImportedLink, ImportReport, open_counts
from app.exceptions import Problem
from app.runtime import open_runtime
from app.settings import Settings
from app.slots import SlotGrid, zone_named

LONG_FILE = 2_000_000  # bytes; about a second of reading
ROWS_BETWEEN_NOTES = 5_000
MORE_REFUSED = "more values were refused than taken; is the format or slot length another?"


class Watched:
    """A file's counts, tallied and shown on the way."""

    def __init__(self, tally: FileTally, status: Status | None) -> None:
        self._tally, self._status = tally, status

    @property
    def grid(self) -> SlotGrid:
        """The grid that slots are numbered on."""
        return self._tally.reader.grid

    @property
    def links(self) -> dict[str, ImportedLink]:
        """The links seen so far."""
        return self._tally.reader.links

    @property
    def report(self) -> ImportReport:
        """What was read so far."""
        return self._tally.reader.report

    def __iter__(self) -> Iterator[ImportedCount]:
        shown = 0
        for count in self._tally.reader:
            self._tally.add(count)
            if self._status and self.report.rows >= shown + ROWS_BETWEEN_NOTES:
                shown = self.report.rows
                self._status.update(f"{escape(self._tally.file)}: {shown:,} rows")
            yield count

    def note(self, done: int, of: int) -> None:
        """Show how far storing is."""
        if self._status:
            self._status.update(f"{escape(self._tally.file)}: {done:,} of {of:,} counts stored")


Take = Callable[[FileTally, Watched], None]


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Count files, also .gz and .zip; - for stdin.")],
    layout: Annotated[str, typer.Option("--format", help="Layout of the files; auto recognises it.")] = "auto",
    zone: Annotated[str | None, typer.Option(help="IANA time zone of the links.")] = None,
    slot_minutes: Annotated[int, typer.Option(help="Length of a slot, in minutes.")] = 15,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and report; no database is needed.")] = False,
    create_links: Annotated[bool, typer.Option("--create-links", help="Create links that do not exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    refusals: Annotated[int, typer.Option(help="Refused rows to list for each file, of 100 kept.")] = 20,
) -> None:
    """Store the counts of files, each file whole or not at all, and say what was taken, refused and missing."""
    try:
        if refusals < 0:
            raise ValueError(f"refusals={refusals} is refused; it must be 0 or more")
        grid, links_zone = SlotGrid(slot_minutes), zone_named(zone) if zone else None
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
                    tally = read_file(file, layout, links_zone, grid, take, most)
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


def read_file(
    file: str, layout: str, zone: ZoneInfo | None, grid: SlotGrid, take: Take, most_unpacked: int
) -> FileTally:
    """Read a file to its end, count by count, and let ``take`` have them."""
    opened = open_counts(file, layout=layout, zone=zone, grid=grid, most_unpacked=most_unpacked)
    with opened as reader, _status(file) as status:
        tally = FileTally(file, reader)
        take(tally, Watched(tally, status))
    return tally


def only_read(_tally: FileTally, counts: Watched) -> None:
    """Keep none of the counts."""
    for _ in counts:
        pass


def _storing(stack: ExitStack, settings: Settings, create_links: bool) -> Take:
    """Open the service's database for counts to go in."""
    stack.enter_context(current_database("import", settings))
    runtime = open_runtime(settings)
    stack.callback(runtime.close)

    def store(tally: FileTally, counts: Watched) -> None:
        tally.stored = import_and_issue(runtime, counts, create_links=create_links, dry_run=False, note=counts.note)

    return store


@contextmanager
def _status(file: str) -> Iterator[Status | None]:
    try:
        long = file == "-" or Path(file).stat().st_size > LONG_FILE
    except OSError:
        long = False
    with notes.status(f"reading {escape(file)}") if long and notes.is_terminal else nullcontext() as status:
        yield status
