"""The objects of a list in a JSON document, read one at a time from a document of any size.

The document may stand on one line or on many. Its objects are flat: each ends at its first brace, which a broken one
cannot hide. Several documents, one after the other, are read as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from app.counts.importers.files import LONGEST_LINE, UTF_8
from app.counts.importers.record import CountFileError

BETWEEN = " \t\r\n,"
LONGEST_OPENING = 200  # of what opens a list, which may lie across two pieces


class JsonRow(NamedTuple):
    """One object's text: its number in the document, and the line it starts in."""

    row: int
    line: int
    text: str


class _Text:
    """A document of which no more is held than a row and a piece; ``line`` is that of the first character held."""

    def __init__(self, pieces: Iterator[bytes], opening: re.Pattern[str]) -> None:
        self._pieces, self._opening = pieces, opening
        self._decoder = UTF_8(errors="replace")
        self.held, self.line = "", 1

    def more(self) -> bool:
        """Hold one piece more, if there is one."""
        piece = next(self._pieces, b"")
        self.held += self._decoder.decode(piece)
        return bool(piece)

    def take(self, length: int) -> str:
        """Return up so many characters."""
        taken, self.held = self.held[:length], self.held[length:]
        self.line += taken.count("\n")
        return taken

    def find_list(self) -> bool:
        """Go to the first row of the next list; what stands before it does not matter."""
        while not (found := self._opening.search(self.held)):
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


def json_rows(lines: Iterator[bytes], opening: re.Pattern[str], name: str) -> Iterator[JsonRow] | None:
    """Return the rows of the lists that ``opening`` opens, or None if there is no such list."""
    text = _Text(lines, opening)
    return _rows(text, name) if text.find_list() else None


def _rows(text: _Text, name: str) -> Iterator[JsonRow]:
    """Return the rows; where the document ends before its list does, what is left is one."""
    for row in count():
        text.pass_over(BETWEEN)
        while text.held.startswith("]"):
            text.take(1)
            if not text.find_list():
                return
            text.pass_over(BETWEEN)
        while "}" not in text.held and len(text.held) <= LONGEST_LINE and text.more():
            pass
        end = text.held.find("}") + 1
        if not end and len(text.held) > LONGEST_LINE:
            raise CountFileError(f"{name} has a row of more than {LONGEST_LINE} characters, from line {text.line} on")
        yield JsonRow(row, text.line, text.take(end or len(text.held)))
        if not end:
            return
