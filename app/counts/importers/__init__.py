"""Importers: from a file of counts to links, counts and a report, one count at a time.

A layout is a module of this package with ``NAME``, ``NEEDS`` (its columns, for messages), ``recognises(first_line)``
and ``read(lines, progress)``; a new one is found by being there. ``ROW_MINUTES`` is the length of its rows; without it
the length is detected in each file. One with ``PIECES = True`` is a document that may be a single line of any length:
it gets such a line in pieces, where others get it cut off.
Memory does not grow with the file, only with its numbers of links and days.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Protocol, cast
from zoneinfo import ZoneInfo

from app.core.slots import SlotGrid, zone_named
from app.counts.importers.columns import MAP_EXAMPLE, Columns
from app.counts.importers.files import Part, Source, lines, open_parts
from app.counts.importers.progress import Progress
from app.counts.importers.record import (
    SECONDS,
    YEAR_RULE,
    CountFileError,
    ImportedCount,
    ImportedLink,
    ImportReport,
    Refusal,
    shortened,
)
from app.counts.importers.slot_sums import ReadPart, SlotStarts
from app.counts.tables import Quality

__all__ = [
    "Columns",
    "CountFileError",
    "CountReader",
    "ImportReport",
    "ImportedCount",
    "ImportedLink",
    "Quality",
    "Refusal",
    "layouts",
    "open_counts",
]

QUARTERS = SlotGrid()
MINUTES = SlotGrid(1)
OWN = ("flowcast-csv", "flowcast-jsonl", "flowcast-json")


class Layout(Protocol):
    """What a module must have to be a layout; ``lines`` start with the first one."""

    NAME: str
    NEEDS: str

    def recognises(self, first_line: str) -> bool:
        """Return whether a file has this layout, by its first line."""

    def read(self, lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
        """Return a count for each row, and note rows, values, links and refusals on the way."""


@cache
def layouts() -> MappingProxyType[str, Layout]:
    """All known layouts, by name."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    known = {module.NAME: cast(Layout, module) for module in modules if hasattr(module, "NAME")}
    return MappingProxyType(dict(sorted(known.items())))


class CountReader:
    """The rows of one source, read once, in the file's order.

    ``links``, ``report`` and ``parts`` fill up on the way and are complete when the rows are exhausted; the report's
    counts and gaps only when the rows are summed into slots (``app.counts.import_spool``). ``grid`` is that of links
    that have no slot length of their own.
    """

    def __init__(self, source: Source, layout: str, grid: SlotGrid, most_unpacked: int | None, how: Progress) -> None:
        with ExitStack() as stack:
            parts = open_parts(source, stack, most_unpacked)
            self._parts = [(part, _layout_of(part, layout, how.columns)) for part in parts]
            self._stack = stack.pop_all()
        self.grid, self._progress = grid, how
        self.parts: list[ReadPart] = []
        self.report.layout = ", ".join(dict.fromkeys(chosen.NAME for _, chosen in self._parts))
        self._counts = self._read()

    @property
    def links(self) -> dict[str, ImportedLink]:
        """The links seen so far, by id."""
        return self._progress.links

    @property
    def report(self) -> ImportReport:
        """What was read so far."""
        return self._progress.report

    def __iter__(self) -> Iterator[ImportedCount]:
        return self._counts

    def __enter__(self) -> CountReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened; a stream that was handed in stays open."""
        self._counts.close()
        self._stack.close()

    def _read(self) -> Generator[ImportedCount, None, None]:
        for part, layout in self._parts:
            self._progress.begin(part.name)
            read, starts = ReadPart(part.name, getattr(layout, "ROW_MINUTES", None)), SlotStarts()
            self.parts.append(read)
            with ExitStack() as stack:
                text = lines(part, stack, pieces=getattr(layout, "PIECES", False))
                for count in layout.read(text, self._progress):
                    if 60 * count.minute not in SECONDS:  # of a local day at the very beginning or end
                        start = MINUTES.start(count.minute).isoformat()
                        self._progress.refuse(self._progress.line, "slot_start", start, YEAR_RULE)
                        continue
                    if read.row_minutes is None:
                        starts.add(count.minute)
                    yield count
            read.row_minutes = read.row_minutes or starts.length(self.grid.slot_minutes)
        self._progress.end()


def open_counts(
    source: Source,
    *,
    layout: str = "auto",
    zone: ZoneInfo | str | None = None,
    grid: SlotGrid = QUARTERS,
    most_unpacked: int | None = None,
    columns: Columns | None = None,
) -> CountReader:
    """Open a file of counts: a path, ``-`` for standard input, or a binary stream; also gzip and zip.

    ``zone`` is that of the links; it decides where a layout gives local times. Left out, each
    layout has its own. ``columns`` says where the fields of Flowcast's own layouts are. A source that cannot be read
    as counts raises ``CountFileError``, and so does a packed one that unpacks to more than ``most_unpacked`` bytes,
    if given.
    """
    if layout != "auto" and layout not in layouts():
        raise CountFileError(f"layout={layout!r} is refused; it must be auto or one of {', '.join(layouts())}")
    if columns and layout not in ("auto", *OWN):
        raise CountFileError(f"layout={layout!r} has columns of its own; map and link concern {', '.join(OWN)}")
    links_zone = zone_named(zone) if isinstance(zone, str) else zone
    how = Progress(links_zone, ImportReport(layout), columns or Columns())
    return CountReader(source, layout, grid, most_unpacked, how)


def _layout_of(part: Part, wanted: str, columns: Columns) -> Layout:
    if wanted != "auto":
        return layouts()[wanted]
    first = part.first.decode(errors="replace").strip()
    if columns:
        csv, lines, document = (layouts()[name] for name in OWN)
        if document.recognises(first):
            return document
        return lines if first.startswith("{") else csv
    for layout in layouts().values():
        if layout.recognises(first):
            return layout
    known = "; ".join(f"{name}: {layout.NEEDS}" for name, layout in layouts().items())
    raise CountFileError(
        f"{part.name} has an unknown layout: it starts with {shortened(first)!r}. The option map reads any CSV, as in "
        f"{MAP_EXAMPLE}, and link one without a link column. Known layouts need these columns: {known}"
    )
