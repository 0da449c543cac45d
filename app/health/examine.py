"""Examine one link: verdicts on its counts, completeness day by day, and the age of its feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import numpy as np
from sqlalchemy.orm import Session

from app.counts.queries import Rows, counts_between, newest_slots
from app.counts.series import as_count_series
from app.counts.stored_series import series_of
from app.counts.tables import QUALITIES
from app.health.feed import Now
from app.health.schemas import DayCompleteness, HealthVerdict, LinkHealth, VerdictName
from app.links.queries import LinkInfo, link_or_404
from app.web.instants import instant_of
from model.detector_health import Verdict, examine

LEAST_DAYS = 8  # fewer would always be too few to learn from
CONCERNS_HISTORY = "too_few"  # says something of the span, nothing of its counts


def link_health(session: Session, link_id: str, days: int, now: Now) -> LinkHealth:
    """Examine the last days of a link, the last of them that of its newest count."""
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    stale_after = now.stale_after // 60
    if newest is None:
        return LinkHealth(**now.feed(link, None, False), stale_after_minutes=stale_after, verdicts=[], days=[])
    shown = local_days(link, newest, days)
    examined = range(local_days(link, newest, max(days, LEAST_DAYS))[0][1].start, newest // link.slot_seconds + 1)
    rows = counts_between(session, [link.link_key], examined[0] * link.slot_seconds, newest)
    found = verdicts_on(link, rows, examined)
    verdicts = [verdict for verdict in found if examined.start + verdict.last >= shown[0][1].start]
    return LinkHealth(
        **now.feed(link, newest, in_doubt(link, found, examined)),
        stale_after_minutes=stale_after,
        verdicts=[_shown(link, verdict, examined.start) for verdict in verdicts],
        days=list(_completeness(link, rows, shown, now)),
    )


def local_days(link: LinkInfo, newest: int, days: int) -> list[tuple[date, range]]:
    """Give the last local days up to that of the newest slot, each with the numbers of its slots."""
    last = instant_of(newest).astimezone(link.zone).date()
    dates = [last - timedelta(days=back) for back in reversed(range(days))]
    return [(day, link.grid.local_day(day, link.zone)) for day in dates]


def verdicts_on(link: LinkInfo, rows: Rows, slots: range) -> list[Verdict]:
    """Judge the counts of consecutive slots."""
    per_slot = None if link.capacity is None else link.capacity * link.slot_minutes / 60
    return examine(as_count_series(series_of(link, rows, slots)), per_slot).verdicts


def in_doubt(link: LinkInfo, verdicts: Sequence[Verdict], slots: range) -> bool:
    """Tell whether a verdict touches the newest day's worth of slots."""
    recent = len(slots) - link.grid.slots_per_day
    return any(verdict.last >= recent for verdict in verdicts if verdict.name != CONCERNS_HISTORY)


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
