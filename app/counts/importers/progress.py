"""An import under way: the settings a layout reads by, and its tally of lines, links and refusals."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.counts.importers.files import LONGEST_LINE
from app.counts.importers.record import CountFileError, ImportedLink, ImportReport, Refusal, shortened
from app.slots import SlotGrid

MOST_LINKS = 100_000
LINE_RULE = f"must be UTF-8 text of at most {LONGEST_LINE} bytes"


class Links(dict[str, ImportedLink]):
    """The links of a file, of which memory holds each: so many and no more."""

    def __setitem__(self, link_id: str, link: ImportedLink) -> None:
        if len(self) >= MOST_LINKS and link_id not in self:
            raise CountFileError(f"the file names more than {MOST_LINKS:,} links, the most that are taken at once")
        super().__setitem__(link_id, link)


class Row(NamedTuple):
    """The fields of one line, by column."""

    line: int
    fields: dict[str, str]


@dataclass
class Progress:
    """One import; ``zone`` is None when the caller leaves it to the layout."""

    grid: SlotGrid
    zone: ZoneInfo | None
    report: ImportReport
    links: Links = field(default_factory=Links)
    source: str = ""
    line: int = 0  # that was read last

    def refuse(self, line: int, name: str, value: object, reason: str, values: int = 1) -> None:
        """Note an entry that is not taken."""
        self.report.refuse(Refusal(self.source, line, name, shortened(str(value)), reason, values))

    def texts(self, lines: Iterator[bytes], *, first: int = 1, values: int = 1) -> Iterator[tuple[int, str]]:
        """Give the lines that are text, by number; each stands for so many values, a blank one for none."""
        for number, raw in enumerate(lines, first):
            if not (stripped := raw.strip()):
                continue
            self.line = number
            self.report.rows += 1
            self.report.values += values
            text = _decoded(raw)
            if text is None:
                self.refuse(number, "line", stripped[:80].decode(errors="replace"), LINE_RULE, values)
            else:
                yield number, text

    def table(
        self, lines: Iterator[bytes], needed: Sequence[str], *, known: Sequence[str] | None = None, values: int = 1
    ) -> Iterator[Row]:
        """Read comma-separated rows below a header, in which columns beyond ``known`` are refused, if given."""
        header = self._header(next(lines).decode(errors="replace"), needed, known)
        rule = f"must have {len(header)} fields"
        for number, text in self.texts(lines, first=2, values=values):
            try:
                fields = fields_of(text)
            except csv.Error:
                self.refuse(number, "line", text, "must be comma-separated, with each quote closed", values)
                continue
            if len(fields) == len(header):
                yield Row(number, dict(zip(header, fields, strict=True)))
            else:
                self.refuse(number, "line", f"{len(fields)} fields: {text}", rule, values)

    def _header(self, first_line: str, needed: Sequence[str], known: Sequence[str] | None) -> list[str]:
        header = header_of(first_line)
        if missing := [name for name in needed if name not in header]:
            raise CountFileError(f"{self.source} has no column {missing[0]!r} in its first line")
        if twice := [name for name in needed if header.count(name) > 1]:
            raise CountFileError(f"{self.source} has the column {twice[0]!r} twice in its first line")
        if known is not None and (unknown := [name for name in header if name not in known]):
            raise CountFileError(f"{self.source} has an unknown column {unknown[0]!r}; known are {', '.join(known)}")
        return header


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode().strip() if len(raw) <= LONGEST_LINE else None
    except UnicodeDecodeError:
        return None


def fields_of(text: str) -> list[str]:
    """Split one comma-separated line.

    Lines are split one at a time, since no layout has a line break inside a field and an unclosed
    quote must not swallow the rest of the file.
    """
    fields = next(csv.reader([text], strict=True, skipinitialspace=True)) if '"' in text else text.split(",")
    return [field.strip() for field in fields]


def header_of(first_line: str) -> list[str]:
    """Columns named by a first line; none when it is no header."""
    try:
        return fields_of(first_line)
    except csv.Error:
        return []
