"""WebTRIS' daily report as CSV; the rules are those of ``webtris``."""

from __future__ import annotations

from collections.abc import Iterator

from app.counts.importers.columns import header_of
from app.counts.importers.progress import Progress
from app.counts.importers.record import ImportedCount, Refused
from app.counts.importers.webtris import NEEDED, SLOT_MINUTES, Sites

NAME = "webtris-daily"
NEEDS = ", ".join(NEEDED)
ROW_MINUTES = SLOT_MINUTES


def recognises(first_line: str) -> bool:
    """Return whether a first line has the columns of this layout."""
    return set(NEEDED) <= set(header_of(first_line))


def read(lines: Iterator[bytes], progress: Progress) -> Iterator[ImportedCount]:
    """Return the counts."""
    sites = Sites(progress)
    for line, fields in progress.table(lines, NEEDED):
        try:
            count = sites.count(fields)
        except Refused as refused:
            progress.refuse(line, refused.name, refused.value, refused.rule)
            continue
        if count:
            yield count
