"""WebTRIS' daily report as its API gives it, ``{"Header": …, "Rows": [{…}, …]}``; the rules are in ``webtris``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from app.counts.importers.json_rows import json_rows
from app.counts.importers.progress import Progress
from app.counts.importers.record import CountFileError, ImportedCount, Refused
from app.counts.importers.webtris import NEEDED, SLOT_MINUTES, Sites

NAME = "webtris-daily-json"
NEEDS = '{"Header": …, "Rows": [ … ]} with the same keys in each row'
ROW_MINUTES = SLOT_MINUTES
PIECES = True
START = re.compile(r'\{\s*"(?:Header|Rows)"\s*:')
ROWS = re.compile(r'"Rows"\s*:\s*\[')
ROW_RULE = "must be a whole JSON object without inner ones, or the bracket that ends the list"


def recognises(first_line: str) -> bool:
    """Return whether the first key is that of this layout."""
    return START.match(first_line) is not None


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts."""
    sites = Sites(progress)
    rows = json_rows(lines, ROWS, progress.source)
    if rows is None:
        raise CountFileError(f'{progress.source} is no WebTRIS report: it has no list "Rows"')
    for row, line, text in rows:
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
