"""Sums over slots, for layouts whose rows are shorter than a slot: several rows of a link make one count.

A value of the report is a slot with at least one sound row, or a refused row. A slot that lacks a
row, or has one without a count, is a gap: a sum of the others would be too small. One slot a link is
open at a time and closed by a row of a later one, so rows may come link by link or time by time.

A time that autumn repeats is its first occurrence, until the link's rows go back by half the
repeated hour or more: from there on they are the second. Smaller steps back are rows out of order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.counts.importers.local_time import Occurrences
from app.counts.importers.progress import Progress
from app.counts.importers.record import ImportedCount, Quality

ORDER_RULE = "must not come after a row of a later slot: the rows of a link must be in the order of time"
TWICE_RULE = "must come once for a link: there is a row for that time already"


@dataclass(slots=True)
class OpenSlot:
    """A link's slot that may get more rows; ``seen`` has a bit for each it got."""

    slot: int
    seen: int = 0
    total: int = 0
    blank: bool = False
    imputed: bool = False
    last: int = 0
    second: bool = False

    def occurrence(self, starts: Occurrences) -> int:
        """Tell by the link's last row which occurrence of a repeated time the next one is."""
        if starts.second is None:
            return starts.first
        back = self.last - starts.first
        second = 2 * back >= starts.second - starts.first or (self.second and back > 0)
        return starts.second if second else starts.first


class SlotSums:
    """The open slots of an import whose rows each last so many minutes."""

    def __init__(self, progress: Progress, row_minutes: int) -> None:
        self._report = progress.report
        self._rows_a_slot = progress.grid.slot_minutes // row_minutes
        self._all_seen = (1 << self._rows_a_slot) - 1
        self._open: dict[str, OpenSlot] = {}

    def add(self, link_id: str, starts: Occurrences, count: int | None, *, imputed: bool) -> ImportedCount | None:
        """Take a row, which is a value so far, and give the count of the slot it closes, if any.

        Its starts are numbered on the grid of rows; without a count it is a declared gap. A row that
        comes too late or a second time raises the rule it is refused by.
        """
        now, closed = self._open.get(link_id), None
        number = now.occurrence(starts) if now else starts.first
        slot, place = divmod(number, self._rows_a_slot)
        if now is None or slot > now.slot:
            closed = self._closed(link_id, now) if now else None
            now = self._open[link_id] = OpenSlot(slot)
        elif slot < now.slot:
            raise ValueError(ORDER_RULE)
        elif now.seen >> place & 1:
            raise ValueError(TWICE_RULE)
        else:
            self._report.values -= 1  # the slot is the value, and was counted with its first row
        now.seen |= 1 << place
        now.total += count or 0
        now.blank |= count is None
        now.imputed |= imputed
        now.last, now.second = number, number == starts.second
        return closed

    def rest(self) -> Iterator[ImportedCount]:
        """Close the slots that are still open at the end of a file."""
        for link_id, slot in self._open.items():
            if count := self._closed(link_id, slot):
                yield count
        self._open.clear()

    def _closed(self, link_id: str, slot: OpenSlot) -> ImportedCount | None:
        if slot.blank or slot.seen != self._all_seen:
            self._report.gaps += 1
            return None
        return ImportedCount(link_id, slot.slot, slot.total, Quality.IMPUTED if slot.imputed else Quality.OBSERVED)
