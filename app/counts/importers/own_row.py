"""One row of Flowcast's own layouts, CSV or JSON lines: a link, a slot by its start, a count or a gap."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from app.counts.importers.progress import Progress
from app.counts.importers.record import (
    LINK_ID,
    LINK_ID_RULE,
    SECONDS,
    YEAR_RULE,
    ImportedCount,
    ImportedLink,
    Quality,
)
from app.slots import SlotGrid

LINK, SLOT, COUNT, QUALITY = "link_id", "slot_start", "count", "quality"
REQUIRED = (LINK, SLOT, COUNT)
KEYS = (*REQUIRED, QUALITY)
QUALITIES = {quality.value: quality for quality in Quality}
QUALITY_RULE = f"must be one of {', '.join(QUALITIES)}"
SLOT_RULE = "must be a time as RFC 3339 writes it, such as 2006-10-02T10:15:00+10:00"
OFFSET_RULE = "must carry an offset, such as Z or +10:00"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class Refused(ValueError):
    """A field that breaks its rule."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(rule)
        self.name, self.value, self.rule = name, value, rule


def own_count(
    progress: Progress, link_id: str, slot_start: str, count: int | None, quality: str | None
) -> ImportedCount | None:
    """Check a row and give its count, or None for a declared gap."""
    known = link_id in progress.links
    if not known and not LINK_ID.fullmatch(link_id):
        raise Refused(LINK, link_id, LINK_ID_RULE)
    slot = _slot(slot_start, progress.grid)
    taken = QUALITIES.get(quality) if quality else Quality.OBSERVED
    if taken is None:
        raise Refused(QUALITY, quality, QUALITY_RULE)
    if not known:
        progress.links[link_id] = ImportedLink(link_id, link_id, progress.zone)
    if count is None:
        progress.report.gaps += 1
        return None
    if taken is Quality.SUSPECT:
        progress.report.suspects["the file says so"] += 1
    return ImportedCount(link_id, slot, count, taken)


@lru_cache(maxsize=10_000)  # a slot comes once per link, and is slow to read
def _slot(text: str, grid: SlotGrid) -> int:
    match = RFC_3339.fullmatch(text.upper())
    if not match:
        raise Refused(SLOT, text, SLOT_RULE)
    if not match[3]:
        raise Refused(SLOT, text, OFFSET_RULE)
    try:
        start = datetime.fromisoformat(text.upper())
    except ValueError:
        raise Refused(SLOT, text, SLOT_RULE) from None
    try:
        slot = grid.number(start)
    except ValueError:
        raise Refused(SLOT, text, f"must lie on the grid of {grid.slot_minutes}-minute slots") from None
    if slot * 60 * grid.slot_minutes not in SECONDS:
        raise Refused(SLOT, text, YEAR_RULE)
    return slot
