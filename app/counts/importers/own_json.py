"""Flowcast's own JSON document: a list of objects, or an object with such a list as ``counts``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.counts.importers.json_rows import json_rows
from app.counts.importers.own_jsonl import json_count
from app.counts.importers.progress import Progress
from app.counts.importers.record import CountFileError, ImportedCount, Refused

NAME = "flowcast-json"
NEEDS = 'a list of such objects, or {"counts": [ … ]}'
PIECES = True
START = re.compile(r'\[\s*(?:$|[{\]])|\{\s*"counts"\s*:')
LIST = re.compile(r'^\s*\[|"counts"\s*:\s*\[')


def recognises(first_line: str) -> bool:
    """Return whether a bracket or a key opens a list of counts."""
    return START.match(first_line) is not None


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts."""
    rows = json_rows(lines, LIST, progress.source)
    if rows is None:
        raise CountFileError(f'{progress.source} has no list of counts: it must be a JSON list or {{"counts": [ … ]}}')
    for row, line, text in rows:
        progress.line = line
        progress.report.rows += 1
        progress.report.values += 1
        try:
            yield json_count(text, progress)
        except Refused as refused:
            progress.refuse(line, f"counts[{row}] {refused.name}", refused.value, refused.rule)
