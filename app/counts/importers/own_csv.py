"""Flowcast's own CSV: ``link_id,slot_start,count[,quality]``, where an empty count is a declared gap."""

from __future__ import annotations

from collections.abc import Iterator

from app.counts.importers.own_row import COUNT, KEYS, LINK, QUALITY, REQUIRED, SLOT, Refused, own_count
from app.counts.importers.progress import Progress, header_of
from app.counts.importers.record import ImportedCount, whole_count
from app.csv_cells import from_cell

NAME = "flowcast-csv"


def recognises(first_line: str) -> bool:
    """Tell the layout by its columns, in any order; one more could be a misspelt ``quality``."""
    header = header_of(first_line)
    return set(REQUIRED) <= set(header) <= set(KEYS) and len(set(header)) == len(header)


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Give the counts."""
    for line, fields in progress.table(lines, REQUIRED, known=KEYS):
        try:
            given = _count(fields[COUNT])
            count = own_count(progress, from_cell(fields[LINK]), fields[SLOT], given, fields.get(QUALITY))
        except Refused as refused:
            progress.refuse(line, refused.name, refused.value, refused.rule)
            continue
        if count:
            yield count


def _count(text: str) -> int | None:
    try:
        return whole_count(text) if text else None
    except ValueError as rule:
        raise Refused(COUNT, text, str(rule)) from None
