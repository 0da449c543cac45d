"""Examine one link: verdicts on its counts, completeness day by day, and the age of its feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import numpy as np
from sqlalchemy.orm import Session

from app.counts.queries import Rows, newest_slots
from app.counts.tables import QUALITIES
from app.counts.verdicts import Judged, judge
from app.health.feed import Now
from app.health.schemas import DayCompleteness, HealthVerdict, LinkHealth, VerdictName
from app.links.queries import LinkInfo, link_or_404
from app.web.instants import instant_of
from model.detector_health import TOO_FEW, Verdict


def link_health(session: Session, link_id: str, days: int, now: Now) -> LinkHealth:
    """Examine the last days of a link, the last of them that of its newest count."""
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    stale_after = now.stale_after // 60
    if newest is None:
        return LinkHealth(**now.feed(link, None, False), stale_after_minutes=stale_after, verdicts=[], days=[])
    shown = local_days(link, newest, days)
    judged = judge(session, link, newest, shown[0][1].start * link.slot_seconds, newest)
    verdicts = [verdict for verdict in judged.verdicts if judged.slots.start + verdict.last >= shown[0][1].start]
    return LinkHealth(
        **now.feed(link, newest, in_doubt(link, judged)),
        stale_after_minutes=stale_after,
        verdicts=[_shown(link, verdict, judged.slots.start) for verdict in verdicts],
        days=list(_completeness(link, judged.rows, shown, now)),
    )


def local_days(link: LinkInfo, newest: int, days: int) -> list[tuple[date, range]]:
    """Give the last local days up to that of the newest slot, each with the numbers of its slots."""
    last = instant_of(newest).astimezone(link.zone).date()
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
