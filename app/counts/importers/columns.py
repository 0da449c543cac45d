"""Columns of a CSV file or keys of JSON rows: the delimiter, the header, and which column holds which field."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from app.core.errors import shortened
from app.counts.importers.record import LINK_ID, LINK_ID_RULE

LINK, SLOT, COUNT, QUALITY = "link_id", "slot_start", "count", "quality"
FIELDS = (LINK, SLOT, COUNT, QUALITY)
DELIMITERS = (",", ";", "\t")
QUOTED = re.compile(r'"[^"]*"')
MAP_EXAMPLE = "link_id=Detector,slot_start=Time,count=Vol"
ONE_LINK_RULE = "must be left out where the map names a column for link_id"
MOST_SHOWN = 30
MOST_COMPARED = 100


class ColumnError(ValueError):
    """Columns among which a field is not certain; ``name`` is the field or the column."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Columns:
    """Other names of columns, as the caller gives them, and the only link of a file without a link column."""

    names: tuple[tuple[str, str], ...] = ()
    link_id: str | None = None

    @classmethod
    def parse(cls, text: str | None = None, link_id: str | None = None) -> Columns:
        """Parse a map such as ``link_id=Detector,slot_start=Time,count=Vol``; raise ``ValueError`` if it is invalid."""
        if link_id is not None and not LINK_ID.fullmatch(link_id):
            raise ValueError(f"link={shortened(link_id)!r} is refused; it {LINK_ID_RULE}")
        pairs = [pair.partition("=") for pair in header_of(text, ",") or [""]] if text is not None else []
        names = {name.strip(): column.strip() for name, _, column in pairs}
        if text is not None and (len(names) < len(pairs) or not set(names) <= set(FIELDS) or not all(names.values())):
            fields = ", ".join(FIELDS)
            raise ValueError(
                f"map={shortened(text)!r} is refused; it must give a column to {fields}, as in {MAP_EXAMPLE}"
            )
        if link_id is not None and LINK in names:
            raise ValueError(f"link={link_id!r} is refused; it {ONE_LINK_RULE}")
        return cls(tuple(names.items()), link_id)

    def __bool__(self) -> bool:
        return bool(self.names) or self.link_id is not None


@lru_cache(maxsize=16)  # rows of JSON share their keys
def locate(columns: Columns, header: tuple[str, ...]) -> dict[str, str]:
    """Return the column of each field, upper and lower case alike; raise ``ColumnError`` if it is not certain."""
    wanted = {name: name for name in FIELDS} | dict(columns.names)
    found = {name: _find(name, column, header) for name, column in wanted.items()}
    if columns.link_id is not None and found[LINK] is not None:
        raise ColumnError(LINK, f"has a column {found[LINK]!r}, so the option link must be left out")
    for name, column in wanted.items():
        optional = (name == QUALITY and column == name) or (name == LINK and columns.link_id is not None)
        if found[name] is None and not optional:
            hint = f"the option map names another, as in {MAP_EXAMPLE}"
            raise ColumnError(name, f"has no column {column!r} among {_shown(header)}; {hint}")
    located = {name: column for name, column in found.items() if column is not None}
    if not columns and QUALITY not in located:
        for name in set(header[:MOST_COMPARED]) - set(located.values()):
            if get_close_matches(name.casefold(), [QUALITY], cutoff=0.8):
                raise ColumnError(name, f"has an unknown column {name!r}; rename it if it is {QUALITY!r}")
    return located


def _find(name: str, column: str, header: Sequence[str]) -> str | None:
    exact = [one for one in header if one == column]
    alike = exact or [one for one in header if one.casefold() == column.casefold()]
    if len(alike) > 1:
        raise ColumnError(name, f"has the column {column!r} twice")
    return alike[0] if alike else None


def delimiter_of(first_line: str) -> str:
    """Return the delimiter that a first line has most of, outside quotes."""
    bare = QUOTED.sub("", first_line)
    return max(DELIMITERS, key=bare.count)


def fields_of(text: str, delimiter: str) -> list[str]:
    """Split one line of CSV.

    Lines are split one at a time, since no layout has a line break inside a field and an unclosed
    quote must not swallow the rest of the file.
    """
    if '"' not in text:
        return [field.strip() for field in text.split(delimiter)]
    return [
        field.strip() for field in next(csv.reader([text], strict=True, skipinitialspace=True, delimiter=delimiter))
    ]


def header_of(first_line: str, delimiter: str | None = None) -> list[str]:
    """Return the columns that a first line names; none when it is no header."""
    try:
        return fields_of(first_line, delimiter or delimiter_of(first_line))
    except csv.Error:
        return []


def _shown(header: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in header[:MOST_SHOWN])
    return shown + (f" and {len(header) - MOST_SHOWN} more" if len(header) > MOST_SHOWN else "")
