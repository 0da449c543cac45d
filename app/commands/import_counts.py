"""``flowcast import``."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from app.commands.console import FAILED, REFUSED, AsJson, notes, out, print_refusal, refuse
from app.commands.count_files import MORE_REFUSED, ColumnMap, LayoutOption, OnlyLink, OpenFile, file_opener, totals
from app.commands.database import current_database, read_settings
from app.core.errors import Problem
from app.core.times import instant_of
from app.counts.import_file import import_file
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from app.counts.importers.spool import Spool
from app.counts.ingest import IngestContext
from app.counts.schemas import ImportedFile
from app.server.resources import open_resources
from app.settings import Settings

FEW_LINKS = 20
LONG_FILE = 2_000_000  # bytes; about a second of reading
TOTALS = ("layout", "rows", "values", "counts", "suspect", "imputed", "gaps", "refused")
STORED = ("stored", "replaced", "unchanged", "repeated", "links_created", "unknown_links", "forecasts_issued")

Store = Callable[..., ImportedFile]


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Count files, also .gz and .zip; - for stdin.")],
    layout: LayoutOption = "auto",
    zone: Annotated[
        str | None, typer.Option(help="IANA time zone of new links, and of local times in the files.")
    ] = None,
    slot_minutes: Annotated[int, typer.Option(help="Slot length of links that do not exist yet, in minutes.")] = 15,
    column_map: ColumnMap = None,
    link: OnlyLink = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and report; no database is needed.")] = False,
    create_links: Annotated[bool, typer.Option("--create-links", help="Create links that do not exist.")] = False,
    as_json: AsJson = False,
    refusals: Annotated[int, typer.Option(min=0, help="Refused rows to list for each file, at most 100.")] = 20,
) -> None:
    """Store the counts of files, each file whole or not at all, and report what was taken, refused and missing.

    The slot length of a file is detected. Rows shorter than a link's slots are summed; a file with
    longer rows, or with rows off the grid, is refused whole. --map and --link read any CSV.

    Example:

        flowcast import a.csv --map slot_start=Time,count=Vol --link A7 --zone Europe/Berlin
    """
    try:
        open_file = file_opener(layout, zone, slot_minutes, column_map, link)
    except ValueError as problem:
        refuse("import", problem)
    code = 0
    documents: list[dict[str, Any]] = []
    try:
        with ExitStack() as stack:
            settings = read_settings("import")
            open_file = partial(open_file, most_unpacked=settings.max_unpacked_megabytes << 20)
            store = None if dry_run else _open_database(stack, settings, create_links)
            for file in files:
                try:
                    reader, stored = read_file(file, open_file, store)
                except (CountFileError, Problem) as problem:
                    code = REFUSED
                    print_refusal("import", problem)
                    documents.append({"file": file, "error": str(problem)})
                    continue
                if as_json:
                    documents.append(as_document(file, reader, stored, refusals))
                else:
                    print_import(file, reader, stored, refusals)
                if reader.report.refused > reader.report.counts:
                    code = max(code, FAILED)
                    notes.print(escape(f"{file}: {MORE_REFUSED}"), style="red", soft_wrap=True)
    except KeyboardInterrupt:
        notes.print("interrupted")
        raise
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
    raise typer.Exit(code)


def _open_database(stack: ExitStack, settings: Settings, create_links: bool) -> Store:
    """Open the service's database; return a function that stores a file's counts."""
    stack.enter_context(current_database("import", settings))
    opened = open_resources(settings)
    stack.callback(opened.close)
    context = IngestContext(settings, opened.engine, opened.clock, opened.forecast_cache.issue)
    return partial(import_file, context, create_links=create_links)


def read_file(file: str, open_file: OpenFile, store: Store | None) -> tuple[CountReader, ImportedFile | None]:
    """Read a file to its end and store its counts; without ``store``, only sum them into slots."""
    shows = notes.is_terminal and _is_long(file)
    with open_file(file) as reader, notes.status(f"reading {escape(file)}") if shows else nullcontext() as status:

        def note(text: str) -> None:
            if status is not None:
                status.update(f"{escape(file)}: {text}")

        if store is not None:
            return reader, store(reader, note=note)
        with Spool(reader) as spool:
            spool.read(note)
            spool.sum_into_slots()
        return reader, None


def _is_long(file: str) -> bool:
    try:
        return file == "-" or Path(file).stat().st_size > LONG_FILE
    except OSError:
        return False


def as_document(file: str, reader: CountReader, stored: ImportedFile | None, refusals: int) -> dict[str, Any]:
    """Return as JSON what became of a file's values."""
    report, (first, last) = reader.report, first_and_last_slot(reader)
    return {
        "file": file,
        "error": None,
        **{name: getattr(report, name) for name in TOTALS},
        "first_slot": first,
        "last_slot": last,
        "notes": report.notes,
        "reasons": dict(report.reasons),
        "suspects": dict(report.suspects),
        "refusals": [refusal._asdict() | {"line": refusal.line or None} for refusal in report.refusals[:refusals]],
        "links": links_in(reader),
        **({} if stored is None else {name: getattr(stored, name) for name in STORED}),
    }


def print_import(file: str, reader: CountReader, stored: ImportedFile | None, refusals: int) -> None:
    """Print what became of a file's values, its links if they are few, and its refused rows."""
    report, links, (first, last) = reader.report, links_in(reader), first_and_last_slot(reader)
    lines = [
        f"{file}: {report.layout}",
        f"  {totals(report)}",
        f"  {len(links):,} links, " + (f"slots {first} to {last}" if first else "no counts"),
        *(f"  {note}" for note in report.notes),
    ]
    if stored is not None:
        lines.append(
            f"  stored: {stored.stored:,} new, {stored.replaced:,} replaced, {stored.unchanged:,} unchanged, "
            f"{stored.repeated:,} repeated in the file; {stored.links_created:,} links created, "
            f"{stored.forecasts_issued:,} with a new forecast"
        )
        if unknown := stored.unknown_links:
            lines.append(f"  links that do not exist (--create-links makes them): {', '.join(unknown)}")
    lines += [f"  {n:,} suspect: {reason}" for reason, n in report.suspects.most_common()]
    lines += [f"  {n:,} refused: {reason}" for reason, n in report.reasons.most_common()]
    lines += [f"  {refusal}" for refusal in report.refusals[:refusals]]
    if unlisted := report.refused - sum(refusal.values for refusal in report.refusals[:refusals]):
        lines.append(f"  {unlisted:,} refused values are not listed")
    out.print(escape("\n".join(lines)), soft_wrap=True)
    if 0 < len(links) <= FEW_LINKS:
        table = Table("link", "name", "zone", "counts", "first slot", "last slot")
        for link in links:
            cells = {name: "-" if value is None else str(value) for name, value in link.items()}
            table.add_row(*map(escape, (cells | {"counts": f"{link['counts']:,}"}).values()))
        out.print(table)


def links_in(reader: CountReader) -> list[dict[str, Any]]:
    """Return each link of a file with its number of counts, and the first and last slot that has one."""
    links = []
    for link_id, link in sorted(reader.links.items()):
        first, last, n = reader.report.spans.get(link_id, (None, None, 0))
        known = {"link_id": link_id, "name": link.name, "zone": link.zone.key if link.zone else None, "counts": n}
        links.append(known | {"first_slot": _slot(first), "last_slot": _slot(last)})
    return links


def first_and_last_slot(reader: CountReader) -> tuple[str | None, str | None]:
    """Return the first and last slot of a file that has a count."""
    spans = reader.report.spans.values()
    return _slot(min((span[0] for span in spans), default=None)), _slot(max((span[1] for span in spans), default=None))


def _slot(seconds: int | None) -> str | None:
    return None if seconds is None else f"{instant_of(seconds):%Y-%m-%dT%H:%MZ}"
