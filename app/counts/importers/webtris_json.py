"""WebTRIS' daily report as the API gives it, ``{"Header": …, "Rows": [{…}, …]}``; the rules are those of ``webtris``.

The document is read row by row, on one line or over many, so that a year of it takes no more memory
than a day. Rows are flat objects: each ends at its first brace, which a broken one cannot hide. Several
documents, one after the other, are read as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from app.counts.importers.files import LONGEST_LINE, UTF_8
from app.counts.importers.own_row import Refused
from app.counts.importers.progress import Progress
from app.counts.importers.record import CountFileError, ImportedCount
from app.counts.importers.webtris import NEEDED, Sites

NAME = "webtris-daily-json"
PIECES = True
START = re.compile(r'\{\s*(?:$|"(?:Header|Rows)"\s*:)')
ROWS = re.compile(r'"Rows"\s*:\s*\[')
BETWEEN = " \t\r\n,"
LONGEST_OPENING = 200  # of what ROWS matches, which may lie across two pieces
ROW_RULE = "must be a whole JSON object without inner ones, or the bracket that ends the list"


class Entry(NamedTuple):
    """One row's text: its number in the document, and the line it starts in."""

    row: int
    line: int
    text: str


def recognises(first_line: str) -> bool:
    """Tell the layout by its first key, or by the lone brace of a document written over many lines."""
    return START.match(first_line) is not None


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Give the counts."""
    sites = Sites(NAME, progress)
    for row, line, text in _entries(_Text(lines), progress.source):
        progress.report.rows += 1
        progress.report.values += 1
        try:
            found = sites.count(_fields(text))
        except Refused as refused:
            progress.refuse(line, f"Rows[{row}] {refused.name}", refused.value, refused.rule)
            continue
        if found:
            yield found


def _fields(text: str) -> dict[str, str]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Refused("row", text, ROW_RULE)
    fields = {}
    for key in NEEDED:
        if key not in row:
            raise Refused(key, "", "must be given")
        value = row[key]
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise Refused(key, value, "must be a string, a whole number or null")
        fields[key] = "" if value is None else str(value).strip()
    return fields


class _Text:
    """A document of which no more is held than a row and a piece; ``line`` is that of the first character held."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._decoder = UTF_8(errors="replace")
        self.held, self.line = "", 1

    def more(self) -> bool:
        """Hold one piece more, if there is one."""
        piece = next(self._pieces, b"")
        self.held += self._decoder.decode(piece)
        return bool(piece)

    def take(self, length: int) -> str:
        """Give up so many characters."""
        taken, self.held = self.held[:length], self.held[length:]
        self.line += taken.count("\n")
        return taken

    def find_rows(self) -> bool:
        """Go to the first row of the next list; what stands before it does not matter."""
        while not (found := ROWS.search(self.held)):
            self.take(max(0, len(self.held) - LONGEST_OPENING))
            if not self.more():
                return False
        self.take(found.end())
        return True

    def pass_over(self, characters: str) -> None:
        """Go to the next character that is none of these."""
        while True:
            self.take(len(self.held) - len(self.held.lstrip(characters)))
            if self.held or not self.more():
                return


def _entries(text: _Text, name: str) -> Iterator[Entry]:
    """Give the rows; where the document ends before its list does, what is left is one."""
    if not text.find_rows():
        raise CountFileError(f'{name} is no WebTRIS report: it has no list "Rows"')
    for row in count():
        text.pass_over(BETWEEN)
        while text.held.startswith("]"):
            if not text.find_rows():
                return
            text.pass_over(BETWEEN)
        while "}" not in text.held and len(text.held) <= LONGEST_LINE and text.more():
            pass
        end = text.held.find("}") + 1
        if not end and len(text.held) > LONGEST_LINE:
            raise CountFileError(f"{name} has a row of more than {LONGEST_LINE} characters, from line {text.line} on")
        yield Entry(row, text.line, text.take(end or len(text.held)))
        if not end:
            return
