"""Verdicts of detector health on a link's stored counts, the same for counts, health and the page."""

from __future__ import annotations

from datetime import date, timedelta
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.core.times import instant_of
from app.counts.queries import CountRows, counts_between
from app.counts.series import as_count_series, series_of
from app.links.queries import LinkInfo
from model.link_model.detector_health import FORTNIGHT, Verdict, examine, slot_verdicts


class SlotVerdict(StrEnum):
    """The verdicts on the count of a slot."""

    DEAD = "dead"
    STUCK = "stuck"
    IMPOSSIBLE = "impossible"


class JudgedCounts(NamedTuple):
    """The counts of consecutive slots, by number, and the verdicts on them."""

    slots: range
    rows: CountRows
    verdicts: list[Verdict]

    def by_slot(self) -> dict[int, SlotVerdict]:
        """Return the verdict on each slot that has one, by number."""
        names = slot_verdicts(self.verdicts, len(self.slots))
        return {slot: SlotVerdict(name) for slot, name in zip(self.slots, names, strict=True) if name is not None}


def judge(session: Session, link: LinkInfo, newest: int, first: int, last: int) -> JudgedCounts:
    """Judge the counts of the slots from ``first`` to ``last``, both included, in Unix seconds.

    Counts are judged by the fortnights of local days that end with the day of the newest count, so
    that a slot has the same verdict in every span.
    """
    slots = _whole_fortnights(link, newest, first, min(last, newest))
    rows = counts_between(session, [link.link_key], slots.start * link.slot_seconds, slots[-1] * link.slot_seconds)
    return JudgedCounts(
        slots, rows, examine(as_count_series(series_of(link, rows, slots)), link.slot_capacity).verdicts
    )


def _whole_fortnights(link: LinkInfo, newest: int, first: int, last: int) -> range:
    """Return the slots of the fortnights that a span touches, up to the newest."""
    today = local_day(link, newest)
    back = [(today - local_day(link, second)).days // FORTNIGHT * FORTNIGHT for second in (first, last)]
    begin = link.grid.local_day(today - timedelta(days=back[0] + FORTNIGHT - 1), link.zone).start
    end = link.grid.local_day(today - timedelta(days=back[1]), link.zone).stop
    return range(begin, min(end, newest // link.slot_seconds + 1))


def local_day(link: LinkInfo, second: int) -> date:
    """Return the day of a moment by the link's own clock."""
    return instant_of(second).astimezone(link.zone).date()
