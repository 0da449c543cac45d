"""Importers: from a file of counts to links, counts and a report, one count at a time.

A layout is a module of this package with ``NAME``, ``recognises(first_line)`` and
``read(lines, progress)``; a new one is found by being there. One with ``PIECES = True`` is a document
that may be a single line of any length: it gets such a line in pieces, where others get it cut off.
Memory does not grow with the file, only with its number of links.
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

from app.counts.importers.files import Part, Source, lines, open_parts
from app.counts.importers.progress import Progress
from app.counts.importers.record import (
    SECONDS,
    YEAR_RULE,
    CountFileError,
    ImportedCount,
    ImportedLink,
    ImportReport,
    Quality,
    Refusal,
    shortened,
)
from app.slots import SlotGrid, zone_named

__all__ = [
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


class Layout(Protocol):
    """What a module must have to be a layout; ``lines`` start with the first one."""

    NAME: str

    def recognises(self, first_line: str) -> bool:
        """Tell by its first line whether a file has this layout."""

    def read(self, lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
        """Give the counts, and note rows, values, links, gaps and refusals on the way."""


@cache
def layouts() -> MappingProxyType[str, Layout]:
    """All known layouts, by name."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    known = {module.NAME: cast(Layout, module) for module in modules if hasattr(module, "NAME")}
    return MappingProxyType(dict(sorted(known.items())))


class CountReader:
    """The counts of one source, read once, in the file's order.

    ``links`` and ``report`` fill up on the way and are complete when the counts are exhausted.
    """

    def __init__(
        self, source: Source, layout: str, zone: ZoneInfo | None, grid: SlotGrid, most_unpacked: int | None = None
    ) -> None:
        with ExitStack() as stack:
            parts = open_parts(source, stack, most_unpacked)
            self._parts = [(part, _layout_of(part, layout)) for part in parts]
            self._stack = stack.pop_all()
        names = dict.fromkeys(chosen.NAME for _, chosen in self._parts)
        self._progress = Progress(grid, zone, ImportReport(", ".join(names)))
        self._counts = self._read()

    @property
    def grid(self) -> SlotGrid:
        """The grid that slots are numbered on."""
        return self._progress.grid

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
        report, seconds = self.report, 60 * self.grid.slot_minutes
        for part, layout in self._parts:
            self._progress.source = part.name
            with ExitStack() as stack:
                text = lines(part, stack, pieces=getattr(layout, "PIECES", False))
                for count in layout.read(text, self._progress):
                    if count.slot * seconds not in SECONDS:  # of a local day at the very beginning or end
                        start = self.grid.start(count.slot).isoformat()
                        self._progress.refuse(self._progress.line, "slot_start", start, YEAR_RULE)
                        continue
                    report.counts += 1
                    report.suspect += count.quality is Quality.SUSPECT
                    report.imputed += count.quality is Quality.IMPUTED
                    yield count


def open_counts(
    source: Source,
    *,
    layout: str = "auto",
    zone: ZoneInfo | str | None = None,
    grid: SlotGrid = QUARTERS,
    most_unpacked: int | None = None,
) -> CountReader:
    """Open a file of counts: a path, ``-`` for standard input, or a binary stream; also gzip and zip.

    ``zone`` is that of the links; it decides where a layout gives local times. Left out, each
    layout has its own. A source that cannot be read as counts raises ``CountFileError``, and so does a packed one
    that unpacks to more than ``most_unpacked`` bytes, if given.
    """
    if layout != "auto" and layout not in layouts():
        raise CountFileError(f"layout={layout!r} is refused; it must be auto or one of {', '.join(layouts())}")
    return CountReader(source, layout, zone_named(zone) if isinstance(zone, str) else zone, grid, most_unpacked)


def _layout_of(part: Part, wanted: str) -> Layout:
    if wanted != "auto":
        return layouts()[wanted]
    first = part.first.decode(errors="replace").strip()
    for layout in layouts().values():
        if layout.recognises(first):
            return layout
    seen = shortened(first)
    raise CountFileError(
        f"{part.name} has an unknown layout: it starts with {seen!r}; known are {', '.join(layouts())}"
    )
