"""Flowcast's own CSV: ``link_id,slot_start,count[,quality]``, where an empty count is a declared gap.

Columns may stand in any order, in upper or lower case, beside others, and between commas, semicolons or tabs. The
caller may name other columns, and the link of a file without such a column.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.counts.importers.columns import (
    COUNT,
    LINK,
    QUALITY,
    SLOT,
    ColumnError,
    Columns,
    delimiter_of,
    header_of,
    locate,
)
from app.counts.importers.own_row import own_count
from app.counts.importers.progress import LINE_ENDS, Progress
from app.counts.importers.record import CountFileError, ImportedCount, Refused
from app.http.csv import from_cell

NAME = "flowcast-csv"
NEEDS = "link_id, slot_start, count and perhaps quality"


def recognises(first_line: str) -> bool:
    """Return whether a first line has the columns of this layout."""
    try:
        return bool(locate(Columns(), tuple(header_of(first_line))))
    except ColumnError:
        return False


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts."""
    first_line = next(lines).decode(errors="replace").strip(LINE_ENDS)
    header = header_of(first_line)
    try:
        columns = locate(progress.columns, tuple(header))
    except ColumnError as problem:
        raise CountFileError(f"{progress.source} {problem}") from None
    progress.leave_unread(name for name in header if name not in columns.values())
    link, quality = columns.get(LINK), columns.get(QUALITY)
    for line, fields in progress.rows(lines, header, delimiter_of(first_line)):
        link_id = from_cell(fields[link]) if link is not None else str(progress.columns.link_id)
        judged = fields[quality] if quality is not None else None
        try:
            yield own_count(progress, link_id, fields[columns[SLOT]], fields[columns[COUNT]], judged)
        except Refused as refused:
            progress.refuse(line, refused.name, refused.value, refused.rule)
