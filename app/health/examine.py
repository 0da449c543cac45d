"""Examine one link: verdicts on its counts, completeness day by day, and the age of its feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from app.core.errors import Invalid
from app.core.times import check_order, instant_of, unix_seconds
from app.counts.queries import Rows, newest_slots
from app.counts.tables import QUALITIES
from app.counts.verdicts import Judged, judge, local_day
from app.health.schemas import DayCompleteness, HealthVerdict, LinkHealth, State, VerdictName
from app.links.queries import LinkInfo, link_or_404
from model.link_model.detector_health import TOO_FEW, Verdict


class Now(NamedTuple):
    """The present moment, and the age past which a feed is stale, in seconds."""

    second: int
    stale_after: int

    @classmethod
    def at(cls, now: datetime, stale_after_minutes: int) -> Now:
        """Take the time from the clock."""
        return cls(int(now.timestamp()), 60 * stale_after_minutes)

    def age(self, link: LinkInfo, newest: int) -> int:
        """Return how long the newest slot of a link has been over, in seconds."""
        return max(0, self.second - newest - link.slot_seconds)

    def state(self, link: LinkInfo, newest: int | None, in_doubt: bool = False) -> State:
        """Return the state of a link's feed."""
        if newest is None:
            return State.SILENT
        if self.age(link, newest) > self.stale_after:
            return State.STALE
        return State.SUSPECT if in_doubt else State.OK

    def feed(self, link: LinkInfo, newest: int | None, in_doubt: bool) -> dict[str, Any]:
        """Return the fields that every answer on a link's feed has."""
        return {
            "link_id": link.link_id,
            "state": self.state(link, newest, in_doubt),
            "newest_slot": None if newest is None else instant_of(newest),
            "data_age_seconds": None if newest is None else self.age(link, newest),
        }


MOST_DAYS = 366
DAYS_RULE = f"must lie before the end of the span, by at most {MOST_DAYS} local days"


def link_health(
    session: Session, link_id: str, days: int, asked: tuple[datetime | None, datetime | None], now: Now
) -> LinkHealth:
    """Examine the last days of a link up to its newest count, or the local days of a given span."""
    check_order(*asked)
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    stale_after = now.stale_after // 60
    if newest is None:
        return LinkHealth(**now.feed(link, None, False), stale_after_minutes=stale_after, verdicts=[], days=[])
    shown = local_days(link, newest, days, asked)
    first, last = shown[0][1].start * link.slot_seconds, (shown[-1][1].stop - 1) * link.slot_seconds
    judged = judge(session, link, newest, min(first, newest), last)
    recent = judged if last >= newest else judge(session, link, newest, newest, newest)
    begin, end = shown[0][1].start - judged.slots.start, shown[-1][1].stop - judged.slots.start
    touching = [verdict for verdict in judged.verdicts if verdict.last >= begin and verdict.first < end]
    # Whether a link has too few counts to learn from depends on its newest days alone.
    verdicts = [verdict for verdict in touching if judged is recent or verdict.name != TOO_FEW]
    return LinkHealth(
        **now.feed(link, newest, in_doubt(link, recent)),
        stale_after_minutes=stale_after,
        verdicts=[_shown(link, verdict, judged.slots.start) for verdict in verdicts],
        days=list(_completeness(link, judged.rows, shown, now)),
    )


def local_days(
    link: LinkInfo, newest: int, days: int, asked: tuple[datetime | None, datetime | None]
) -> list[tuple[date, range]]:
    """Return the local days of a span, by default the last up to the newest slot, with the numbers of their slots."""
    begin, end = asked
    last = local_day(link, newest if end is None else unix_seconds(end) - 1)
    if begin is not None:
        days = (last - local_day(link, unix_seconds(begin))).days + 1
        if not 1 <= days <= MOST_DAYS:
            raise Invalid.field("from", begin.isoformat(), DAYS_RULE)
    dates = [last - timedelta(days=back) for back in reversed(range(days))]
    return [(day, link.grid.local_day(day, link.zone)) for day in dates]


def in_doubt(link: LinkInfo, judged: Judged) -> bool:
    """Return whether a verdict touches the newest day's worth of slots."""
    recent = len(judged.slots) - link.grid.slots_per_day
    return any(verdict.last >= recent for verdict in judged.verdicts if verdict.name != TOO_FEW)


def _shown(link: LinkInfo, verdict: Verdict, start: int) -> HealthVerdict:
    return HealthVerdict(
        name=VerdictName(verdict.name),
        reason=verdict.reason,
        from_=link.grid.start(start + verdict.first),
        to=link.grid.start(start + verdict.last + 1),
        slots=verdict.slots,
    )


def _completeness(
    link: LinkInfo, rows: Rows, days: Sequence[tuple[date, range]], now: Now
) -> Iterator[DayCompleteness]:
    numbers = rows[:, 1] // link.slot_seconds
    over = now.second // link.slot_seconds  # slots before this one have ended
    for day, slots in days:
        first, last = np.searchsorted(numbers, (slots.start, slots.stop))
        kinds = np.bincount(rows[first:last, 3], minlength=len(QUALITIES)).tolist()
        ended = np.clip(over, slots.start, slots.stop) - slots.start
        yield DayCompleteness(
            day=day,
            expected=len(slots),
            **dict(zip(QUALITIES, kinds, strict=True)),
            missing=max(0, int(ended) - sum(kinds)),
        )
