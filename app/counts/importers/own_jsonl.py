"""Flowcast's own JSON lines: ``{"link_id": …, "slot_start": …, "count": …}`` each, where null is a declared gap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.counts.importers.own_row import COUNT, KEYS, LINK, QUALITY, REQUIRED, SLOT, Refused, own_count
from app.counts.importers.progress import Progress
from app.counts.importers.record import COUNT_RULE, LARGEST_COUNT, ImportedCount

NAME = "flowcast-jsonl"
KEY_RULE = f"must be one of the keys {', '.join(KEYS)}"


def recognises(first_line: str) -> bool:
    """Tell the layout by a key; the line need not be sound, so that it can be refused by number."""
    return first_line.startswith("{") and f'"{LINK}"' in first_line


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Give the counts."""
    for line, text in progress.texts(lines):
        try:
            row = _row(text)
            count = own_count(progress, row[LINK], row[SLOT], _count(row[COUNT]), row.get(QUALITY))
        except Refused as refused:
            progress.refuse(line, refused.name, refused.value, refused.rule)
            continue
        if count:
            yield count


def _row(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Refused("line", text, "must be a JSON object")
    for key in REQUIRED:
        if key not in row:
            raise Refused(key, "", "must be given")
    for key, value in row.items():
        if key not in KEYS:
            raise Refused("key", key, KEY_RULE)
        if key != COUNT and not isinstance(value, str) and not (key == QUALITY and value is None):
            raise Refused(key, value, "must be a string")
    return row


def _count(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT:
        return value
    raise Refused(COUNT, value, COUNT_RULE)
