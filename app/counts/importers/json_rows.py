"""The objects of a list in a JSON document, read one at a time from a document of any size.

The document may stand on one line or on many. Its objects are flat: each ends at its first brace, which a broken one
cannot hide. Several documents, one after the other, are read as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

from app.counts.importers.files import LONGEST_LINE, UTF_8
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError

BETWEEN = " \t\r\n,"
LONGEST_OPENING = 200  # of what opens a list, which may lie across two pieces


class _Text:
    """A document that is read piece by piece; ``held`` is the unread text, and ``line`` that of its first character."""

    def __init__(self, pieces: Iterator[bytes], opening: re.Pattern[str]) -> None:
        self._pieces, self._opening = pieces, opening
        self._decoder = UTF_8(errors="replace")
        self.held, self.line = "", 1

    def more(self) -> bool:
        """Read another piece; return False if there is none."""
        piece = next(self._pieces, b"")
        self.held += self._decoder.decode(piece)
        return bool(piece)

    def take(self, length: int) -> str:
        """Remove and return up to so many characters."""
        taken, self.held = self.held[:length], self.held[length:]
        self.line += taken.count("\n")
        return taken

    def find_list(self) -> bool:
        """Skip to the first row of the next list; return False if there is none."""
        while not (found := self._opening.search(self.held)):
            self.take(max(0, len(self.held) - LONGEST_OPENING))
            if not self.more():
                return False
        self.take(found.end())
        return True

    def next_row(self) -> bool:
        """Skip to the next row, in this list or another; return False if there is none."""
        while True:
            self.take(len(self.held) - len(self.held.lstrip(BETWEEN)))
            if self.held.startswith("]"):
                self.take(1)
                if not self.find_list():
                    return False
            elif self.held or not self.more():
                return True


def json_rows(
    reader: CountReader, lines: Iterator[bytes], name: str, opening: re.Pattern[str], missing: str
) -> Iterator[str]:
    """Return the text of each row of the lists called ``name``; raise ``CountFileError`` if ``opening`` opens none.

    Where the document ends before its list does, what is left is a row.
    """
    text = _Text(lines, opening)
    if not text.find_list():
        raise CountFileError(f"{reader.source} {missing}")
    for row in count():
        if not text.next_row():
            return
        while "}" not in text.held and len(text.held) <= LONGEST_LINE and text.more():
            pass
        end = text.held.find("}") + 1
        if not end and len(text.held) > LONGEST_LINE:
            raise CountFileError(
                f"{reader.source} has a row of more than {LONGEST_LINE} characters, from line {text.line} on"
            )
        reader.line, reader.place = text.line, f"{name}[{row}] "
        reader.report.rows += 1
        reader.report.values += 1
        yield text.take(end or len(text.held))
        if not end:
            return


def json_object(text: str) -> dict[str, Any] | None:
    """Return a row as an object; None if it is not one."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
