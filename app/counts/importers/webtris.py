"""What the two forms of WebTRIS' daily report share: a row per site and quarter of an hour, named by its end.

The link id is the site's name with ``-`` for each ``/`` and ``_`` for spaces; of two names with one id
the second is refused. A day has 96 rows, whatever the clocks do. Rows in the hour that spring skips
are gaps when blank, and refused when not. A time that autumn repeats is its first occurrence; if it
comes again before the site's rows leave the repeated hour, it is the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, time
from functools import lru_cache
from zoneinfo import ZoneInfo

from app.core.slots import NonexistentTime, SlotGrid, zone_named
from app.counts.importers.local_time import Occurrences, day_of, occurrences, skipped_rule
from app.counts.importers.progress import Progress
from app.counts.importers.record import LINK_ID, ImportedCount, ImportedLink, Refused, whole_count

SITE, DAY, END, COUNT = "Site Name", "Report Date", "Time Period Ending", "Total Volume"
NEEDED = (SITE, DAY, END, COUNT)
SLOT_MINUTES = 15
GRID = SlotGrid(SLOT_MINUTES)
LAST_MINUTE = re.compile(r"([01]?\d|2[0-3]):(14|29|44|59)(?::00)?", re.ASCII)
END_RULE = "must be the last minute of a quarter of an hour, such as 00:14:00 or 23:59:00"
SITE_RULE = "must be 1 to 64 letters, digits, dots, underscores, colons, dashes, slashes or spaces"


class Sites:
    """The sites of one file, and where each stands in an hour that autumn repeats."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._zone = progress.zone or zone_named("Europe/London")
        self._repeated: dict[str, set[int]] = {}

    def count(self, fields: Mapping[str, str]) -> ImportedCount | None:
        """Read a row, or None for a gap in the hour that spring skips; raise ``Refused`` if a field breaks its rule."""
        link_id = self._link_id(fields[SITE])
        day, end = fields[DAY], fields[END]
        text = fields[COUNT]
        try:
            count = whole_count(text) if text else None
        except ValueError as rule:
            raise Refused(COUNT, text, str(rule)) from None
        starts = _starts(day, end, self._zone)
        if starts is None and count is not None:
            raise Refused(END, f"{day} {end}", skipped_rule(self._zone))
        if link_id not in self._progress.links:
            self._progress.links[link_id] = ImportedLink(link_id, fields[SITE], self._zone)
        slot = self._slot(link_id, starts)
        if slot is None:
            self._progress.report.gaps += 1
            return None
        return ImportedCount(link_id, SLOT_MINUTES * slot, count)

    def _link_id(self, site: str) -> str:
        link_id = "_".join(site.replace("/", "-").split())
        if not LINK_ID.fullmatch(link_id):
            raise Refused(SITE, site, SITE_RULE)
        known = self._progress.links.get(link_id)
        if known and known.name != site:
            raise Refused(SITE, site, f"must not make the link id {link_id}, which is that of {known.name!r}")
        return link_id

    def _slot(self, link_id: str, starts: Occurrences | None) -> int | None:
        if starts is None or starts.second is None:
            self._repeated.pop(link_id, None)
            return starts and starts.first
        seen = self._repeated.setdefault(link_id, set())
        if starts.first in seen:
            return starts.second
        seen.add(starts.first)
        return starts.first


@lru_cache(maxsize=10_000)  # a slot comes once per site
def _starts(day: str, end: str, zone: ZoneInfo) -> Occurrences | None:
    """Find the slots that a row can mean; none where the clocks skip it."""
    try:
        date = day_of(day)
    except ValueError as rule:
        raise Refused(DAY, day, str(rule)) from None
    match = LAST_MINUTE.fullmatch(end)
    if not match:
        raise Refused(END, end, END_RULE)
    try:
        return occurrences(datetime.combine(date, time(int(match[1]), int(match[2]) - 14)), zone, GRID)
    except NonexistentTime:
        return None
    except ValueError:
        raise Refused(END, end, f"must end a slot of the grid in {zone.key}") from None
