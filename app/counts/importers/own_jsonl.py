"""Flowcast's own JSON lines: ``{"link_id": …, "slot_start": …, "count": …}`` each, where null is a declared gap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.counts.importers.columns import COUNT, LINK, QUALITY, SLOT, ColumnError, locate
from app.counts.importers.own_row import own_count
from app.counts.importers.progress import Progress
from app.counts.importers.record import COUNT_RULE, ImportedCount, Refused

NAME = "flowcast-jsonl"
NEEDS = "an object a line with the keys link_id, slot_start, count and perhaps quality"


def recognises(first_line: str) -> bool:
    """Return whether a line has a key of this layout; it need not be sound, so that it can be refused by number."""
    return first_line.startswith("{") and f'"{LINK}"' in first_line.lower()


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts."""
    for line, text in progress.texts(lines):
        try:
            yield json_count(text, progress)
        except Refused as refused:
            progress.refuse(line, refused.name, refused.value, refused.rule)


def json_count(text: str, progress: Progress) -> ImportedCount:
    """Read one JSON object; raise ``Refused`` if it breaks a rule."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Refused("line", text, "must be a JSON object")
    try:
        columns = locate(progress.columns, tuple(row))
    except ColumnError as problem:
        raise Refused(problem.name, "", f"must be certain: the object {problem}") from None
    progress.leave_unread(key for key in row if key not in columns.values())
    given: dict[str, Any] = {name: row[key] for name, key in columns.items()}
    link_id = progress.columns.link_id if progress.columns.link_id is not None else given[LINK]
    quality, start = given.get(QUALITY), given[SLOT]
    if not isinstance(link_id, str):
        raise Refused(LINK, link_id, "must be a string")
    if quality is not None and not isinstance(quality, str):
        raise Refused(QUALITY, quality, "must be a string")
    if isinstance(given[COUNT], str):
        raise Refused(COUNT, given[COUNT], f"{COUNT_RULE}, not in quotes")
    return own_count(progress, link_id, start if isinstance(start, str) else str(start), given[COUNT], quality)
