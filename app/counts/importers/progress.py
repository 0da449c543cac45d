"""An import under way: the settings a layout reads by, and its tally of lines, links and refusals."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.counts.importers.columns import Columns, delimiter_of, fields_of, header_of
from app.counts.importers.files import LONGEST_LINE
from app.counts.importers.local_time import RepeatedHours
from app.counts.importers.record import CountFileError, ImportedLink, ImportReport, Refusal, shortened

MOST_LINKS = 100_000
MOST_UNREAD = 20  # columns named in a note
LINE_ENDS = " \r\n\v\f"  # without the tab, which may stand before an empty last field
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

    zone: ZoneInfo | None
    report: ImportReport
    columns: Columns = field(default_factory=Columns)
    links: Links = field(default_factory=Links)
    source: str = ""
    line: int = 0  # that was read last
    repeated: RepeatedHours = field(default_factory=RepeatedHours)
    _unread: dict[str, None] = field(default_factory=dict)

    def begin(self, source: str) -> None:
        """Begin a part: a file, or a member of an archive."""
        self.source, self.line, self.repeated = source, 0, RepeatedHours()

    def refuse(self, line: int, name: str, value: object, reason: str, values: int = 1) -> None:
        """Note an entry that is not taken."""
        self.report.refuse(Refusal(self.source, line, name, shortened(str(value)), reason, values))

    def leave_unread(self, columns: Iterable[str]) -> None:
        """Note columns that are not read, so that the report can name them."""
        for name in columns:
            if name and len(self._unread) < MOST_UNREAD:
                self._unread[shortened(name)] = None

    def end(self) -> None:
        """Add to the report what is known once everything is read."""
        if self._unread:
            self.report.notes.append(f"columns that are not read: {', '.join(self._unread)}")

    def texts(self, lines: Iterator[bytes], *, first: int = 1, values: int = 1) -> Iterator[tuple[int, str]]:
        """Return the lines that are text, by number; each stands for so many values, a blank one for none."""
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

    def table(self, lines: Iterator[bytes], needed: Sequence[str], *, values: int = 1) -> Iterator[Row]:
        """Read the rows below a header that must have the needed columns."""
        first_line = next(lines).decode(errors="replace").strip(LINE_ENDS)
        header = header_of(first_line)
        if missing := [name for name in needed if name not in header]:
            raise CountFileError(f"{self.source} has no column {missing[0]!r} in its first line")
        if twice := [name for name in needed if header.count(name) > 1]:
            raise CountFileError(f"{self.source} has the column {twice[0]!r} twice in its first line")
        yield from self.rows(lines, header, delimiter_of(first_line), values=values)

    def rows(self, lines: Iterator[bytes], header: Sequence[str], delimiter: str, *, values: int = 1) -> Iterator[Row]:
        """Read the rows below a header; those of another width are refused."""
        rule = f"must have {len(header)} fields"
        for number, text in self.texts(lines, first=2, values=values):
            try:
                fields = fields_of(text, delimiter)
            except csv.Error:
                self.refuse(number, "line", text, "must have each quote closed", values)
                continue
            if len(fields) == len(header):
                yield Row(number, dict(zip(header, fields, strict=True)))
            else:
                self.refuse(number, "line", f"{len(fields)} fields: {text}", rule, values)


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode().strip(LINE_ENDS) if len(raw) <= LONGEST_LINE else None
    except UnicodeDecodeError:
        return None
