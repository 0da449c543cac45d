"""Read a file of counts: open it, recognise its layout, and return its rows one at a time.

A layout is a ``Layout`` in the tuple ``LAYOUTS`` of a module of this package; a new module is found without a list of
them. Memory does not grow with the file, only with its numbers of links and days.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar
from zoneinfo import ZoneInfo

from app.core.errors import shortened
from app.core.slots import SlotGrid, zone_named
from app.core.times import instant_of
from app.counts import importers
from app.counts.importers.columns import MAP_EXAMPLE, Columns, delimiter_of, fields_of, header_of
from app.counts.importers.files import LONGEST_LINE, FilePart, Source, lines_of, name_of, open_parts
from app.counts.importers.local_time import RepeatedHours
from app.counts.importers.record import (
    SECONDS,
    YEAR_RULE,
    CountFileError,
    ImportedCount,
    ImportedLink,
    ImportReport,
    Refusal,
    Refused,
)
from app.counts.importers.slot_sums import ReadPart, SlotStarts

AUTO = "auto"
OWN = ("flowcast-csv", "flowcast-jsonl", "flowcast-json")
QUARTERS = SlotGrid()
OWN_NAMES = Columns()
MOST_LINKS = 100_000
MOST_UNREAD = 20  # columns named in a note
LINE_ENDS = " \r\n\v\f"  # without the tab, which may stand before an empty last field
LINE_RULE = f"must be UTF-8 text of at most {LONGEST_LINE} bytes"

Row = TypeVar("Row")


@dataclass(frozen=True)
class Layout:
    """A layout of count files.

    ``read`` gets the lines of a file, with the first one, and returns a count for each row. ``row_minutes`` is the
    length of the rows; without it the length is detected in each file. A document that may be a single line of any
    length has ``pieces``: it gets such a line in pieces, where others get it cut off.
    """

    name: str
    needs: str  # its columns, for messages
    recognises: Callable[[str], bool]  # a file, by its first line
    read: Callable[[CountReader, Iterator[bytes]], Iterator[ImportedCount]]
    row_minutes: int | None = None
    pieces: bool = False


def has_columns(needed: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that checks whether a first line names all of these columns."""
    return lambda first_line: set(needed) <= set(header_of(first_line))


@cache
def layouts() -> Mapping[str, Layout]:
    """Return all known layouts, by name."""
    modules = [import_module(f"{importers.__name__}.{info.name}") for info in iter_modules(importers.__path__)]
    known: list[Layout] = [layout for module in modules for layout in getattr(module, "LAYOUTS", ())]
    return {layout.name: layout for layout in sorted(known, key=lambda layout: layout.name)}


class CountReader:
    """The rows of one source, read once, in the file's order.

    A source is a path, ``-`` for standard input, or a binary stream; also gzip and zip. Messages call it by ``name``.
    ``zone`` is that of the links; it decides where a layout gives local times, and left out, each layout has its own.
    ``grid`` is that of links that have no slot length of their own. ``columns`` names the columns of Flowcast's own
    layouts. A source that cannot be read as counts raises ``CountFileError``, and so does a packed one that unpacks to
    more than ``most_unpacked`` bytes, if given.

    ``links``, ``report`` and ``parts`` fill up on the way and are complete when the rows are exhausted; the report's
    counts and gaps only when the rows are summed into slots, by a ``Spool``.
    """

    def __init__(
        self,
        source: Source,
        *,
        name: str | None = None,
        layout: str = AUTO,
        zone: ZoneInfo | str | None = None,
        grid: SlotGrid = QUARTERS,
        most_unpacked: int | None = None,
        columns: Columns = OWN_NAMES,
    ) -> None:
        if layout != AUTO and layout not in layouts():
            raise CountFileError(f"format={layout!r} is refused; it must be auto or one of {', '.join(layouts())}")
        if columns and layout not in (AUTO, *OWN):
            raise CountFileError(
                f"format={layout!r} is refused with map or link, which only {', '.join(OWN)} have; leave them out"
            )
        self.zone = zone_named(zone) if isinstance(zone, str) else zone
        self.grid, self.columns = grid, columns
        self.links: dict[str, ImportedLink] = {}
        self.parts: list[ReadPart] = []
        self.line, self.place = 0, ""  # of the row that was read last; the place is that in a JSON list
        self.repeated_hours = RepeatedHours()
        self._unread: dict[str, None] = {}
        with ExitStack() as stack:
            parts = open_parts(source, name or name_of(source), stack, most_unpacked)
            self._parts = [(part, _layout_of(part, layout, columns)) for part in parts]
            self._stack = stack.pop_all()
        self.report = ImportReport(", ".join(dict.fromkeys(chosen.name for _, chosen in self._parts)))
        self._counts = self._read()

    def __iter__(self) -> Iterator[ImportedCount]:
        return self._counts

    def __enter__(self) -> CountReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened; a stream that was passed in stays open."""
        self._counts.close()
        self._stack.close()

    @property
    def source(self) -> str:
        """Return the name of the file, or the member of an archive, that is being read."""
        return self.parts[-1].name

    def zone_or(self, name: str) -> ZoneInfo:
        """Return the zone that the caller names, or else the one of a layout."""
        return self.zone or zone_named(name)

    def add_link(self, link: ImportedLink) -> None:
        """Add a link; raise ``CountFileError`` for too many, because all are held in memory."""
        if len(self.links) >= MOST_LINKS and link.link_id not in self.links:
            raise CountFileError(f"the file names more than {MOST_LINKS:,} links; split it")
        self.links[link.link_id] = link

    def refuse(self, name: str, value: object, reason: str, values: int = 1) -> None:
        """Report values of the current row as refused."""
        shown = shortened(str(value))
        self.report.refuse(Refusal(self.source, self.line, self.place + name, shown, reason, values))

    def leave_unread(self, columns: Iterable[str]) -> None:
        """Record columns that are not read, for a note in the report."""
        for name in columns:
            if name and len(self._unread) < MOST_UNREAD:
                self._unread[shortened(name)] = None

    def texts(self, lines: Iterator[bytes], *, first: int = 1, values: int = 1) -> Iterator[str]:
        """Return the lines that are text; each stands for so many values, a blank one for none."""
        for number, raw in enumerate(lines, first):
            if not (stripped := raw.strip()):
                continue
            self.line = number
            self.report.rows += 1
            self.report.values += values
            text = _decoded(raw)
            if text is None:
                self.refuse("line", stripped[:80].decode(errors="replace"), LINE_RULE, values)
            else:
                yield text

    def table(self, lines: Iterator[bytes], needed: Sequence[str], *, values: int = 1) -> Iterator[dict[str, str]]:
        """Return the rows below a header that must have the needed columns, by column."""
        header, delimiter = header_and_delimiter(next(lines))
        if missing := [name for name in needed if name not in header]:
            raise CountFileError(f"{self.source} has no column {missing[0]!r} in its first line")
        if twice := [name for name in needed if header.count(name) > 1]:
            raise CountFileError(f"{self.source} has the column {twice[0]!r} twice in its first line")
        return self.rows(lines, header, delimiter, values=values)

    def rows(
        self, lines: Iterator[bytes], header: Sequence[str], delimiter: str, *, values: int = 1
    ) -> Iterator[dict[str, str]]:
        """Return the rows below a header, by column; refuse those of another width."""
        rule = f"must have {len(header)} fields"
        for text in self.texts(lines, first=2, values=values):
            try:
                fields = fields_of(text, delimiter)
            except csv.Error:
                self.refuse("line", text, "must have each quote closed", values)
                continue
            if len(fields) == len(header):
                yield dict(zip(header, fields, strict=True))
            else:
                self.refuse("line", f"{len(fields)} fields: {text}", rule, values)

    def counts(self, rows: Iterable[Row], read: Callable[[Row], ImportedCount | None]) -> Iterator[ImportedCount]:
        """Read the count of each row, if it has one; refuse the rows for which ``read`` raises ``Refused``."""
        for row in rows:
            try:
                count = read(row)
            except Refused as refused:
                self.refuse(refused.name, refused.value, refused.rule)
                continue
            if count:
                yield count

    def _read(self) -> Generator[ImportedCount, None, None]:
        for part, layout in self._parts:
            read, starts = ReadPart(part.name, layout.row_minutes), SlotStarts()
            self.parts.append(read)
            self.line, self.place, self.repeated_hours = 0, "", RepeatedHours()
            for count in layout.read(self, lines_of(part, pieces=layout.pieces)):
                if 60 * count.minute not in SECONDS:  # of a local day at the very beginning or end
                    self.refuse("slot_start", instant_of(60 * count.minute).isoformat(), YEAR_RULE)
                    continue
                if read.row_minutes is None:
                    starts.add(count.minute)
                yield count
            read.row_minutes = read.row_minutes or starts.length(self.grid.slot_minutes)
        if self._unread:
            self.report.notes.append(f"columns that are not read: {', '.join(self._unread)}")


def header_and_delimiter(first_line: bytes) -> tuple[list[str], str]:
    """Return the columns that a first line names, and what stands between them."""
    text = first_line.decode(errors="replace").strip(LINE_ENDS)
    delimiter = delimiter_of(text)
    return header_of(text, delimiter), delimiter


def _layout_of(part: FilePart, wanted: str, columns: Columns) -> Layout:
    if wanted != AUTO:
        return layouts()[wanted]
    first = part.first.decode(errors="replace").strip()
    if columns:
        own_csv, own_lines, own_document = (layouts()[name] for name in OWN)
        if own_document.recognises(first):
            return own_document
        return own_lines if first.startswith("{") else own_csv
    for layout in layouts().values():
        if layout.recognises(first):
            return layout
    known = "; ".join(f"{name}: {layout.needs}" for name, layout in layouts().items())
    raise CountFileError(
        f"{part.name} has an unknown layout: it starts with {shortened(first)!r}. The option map reads any CSV, as in "
        f"{MAP_EXAMPLE}, and link one without a link column. Known layouts need these columns: {known}"
    )


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode().strip(LINE_ENDS) if len(raw) <= LONGEST_LINE else None
    except UnicodeDecodeError:
        return None
