"""Examine detectors: verdicts on counts, their completeness, and the age of the newest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from app.core.errors import Invalid
from app.core.times import SECONDS_A_DAY, Span, check_order, instant_of, rfc_3339, unix_seconds
from app.counts.queries import CountRows, newest_slots
from app.counts.tables import QUALITIES
from app.counts.verdicts import JudgedCounts, judge, local_day
from app.health.schemas import (
    DayCompleteness,
    FeedTotals,
    HealthVerdict,
    LinkHealth,
    LinkState,
    NetworkHealth,
    State,
    VerdictName,
)
from app.links.queries import LinkInfo, all_links, link_or_404
from model.link_model.detector_health import TOO_FEW, Verdict

MOST_DAYS = 366
DAYS_RULE = f"must lie before the end of the span, by at most {MOST_DAYS} local days"
HIGH = 99  # percentile of a link's counts that is the top of its own range


class Freshness(NamedTuple):
    """The current time, in Unix seconds, and the age in minutes above which a feed is stale."""

    now: int
    stale_after_minutes: int

    def age(self, link: LinkInfo, newest: int) -> int:
        """Return how long the newest slot of a link has been over, in seconds."""
        return max(0, self.now - newest - link.slot_seconds)

    def state(self, link: LinkInfo, newest: int | None, suspect: bool = False) -> State:
        """Return the state of a link's feed."""
        if newest is None:
            return State.SILENT
        if self.age(link, newest) > 60 * self.stale_after_minutes:
            return State.STALE
        return State.SUSPECT if suspect else State.OK

    def feed(self, link: LinkInfo, newest: int | None, suspect: bool = False) -> dict[str, Any]:
        """Return the fields that every answer on a link's feed has."""
        return {
            "link_id": link.link_id,
            "state": self.state(link, newest, suspect),
            "newest_slot": None if newest is None else instant_of(newest),
            "data_age_seconds": None if newest is None else self.age(link, newest),
        }


def link_health(
    session: Session,
    link_id: str,
    freshness: Freshness,
    days: int,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> LinkHealth:
    """Examine the last days of a link up to its newest count, or the local days of a given span."""
    check_order(begin, end)
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    minutes = freshness.stale_after_minutes
    if newest is None:
        return LinkHealth(**freshness.feed(link, None), stale_after_minutes=minutes, verdicts=[], days=[])
    shown = _local_days(link, newest, days, begin, end)
    numbers = range(shown[0][1].start, shown[-1][1].stop)
    first, last = numbers[0] * link.slot_seconds, numbers[-1] * link.slot_seconds
    judged = judge(session, link, newest, min(first, newest), last)
    recent = judged if last >= newest else judge(session, link, newest, newest, newest)
    start = judged.slots.start
    touching = [
        one for one in judged.verdicts if one.last >= numbers.start - start and one.first < numbers.stop - start
    ]
    # Whether a link has too few counts to learn from depends on its newest days alone.
    verdicts = [verdict for verdict in touching if judged is recent or verdict.name != TOO_FEW]
    return LinkHealth(
        **freshness.feed(link, newest, _is_suspect(link, recent)),
        stale_after_minutes=minutes,
        verdicts=[_shown(link, verdict, start) for verdict in verdicts],
        days=list(_days(link, judged.rows, shown, freshness.now)),
    )


def network_health(session: Session, freshness: Freshness, after: str | None, limit: int) -> NetworkHealth:
    """Examine the links that follow an id, and count all by the age of their newest count."""
    # In Python's order, by which the cursor is compared; a database may sort by its language.
    links, newest = sorted(all_links(session), key=lambda link: link.link_id), newest_slots(session)
    states = Counter(freshness.state(link, newest.get(link.link_key)) for link in links)
    left = links if after is None else [link for link in links if link.link_id > after]
    page = left[:limit]
    return NetworkHealth(
        totals=FeedTotals(
            links=len(links), live=states[State.OK], stale=states[State.STALE], silent=states[State.SILENT]
        ),
        stale_after_minutes=freshness.stale_after_minutes,
        links=[_link_state(session, link, newest.get(link.link_key), freshness) for link in page],
        next_cursor=page[-1].link_id if len(left) > limit else None,
    )


def _link_state(session: Session, link: LinkInfo, newest: int | None, freshness: Freshness) -> LinkState:
    if newest is None:
        return LinkState(
            **freshness.feed(link, None), newest_count=None, high_count=None, completeness=None, verdicts=[]
        )
    judged = judge(session, link, newest, newest, newest)
    found = {verdict.name for verdict in judged.verdicts}
    return LinkState(
        **freshness.feed(link, newest, _is_suspect(link, judged)),
        newest_count=int(judged.rows[-1, 2]),
        high_count=float(np.percentile(judged.rows[:, 2], HIGH)),
        completeness=_completeness(link, judged.rows, freshness.now),
        verdicts=[name for name in VerdictName if name in found],
    )


def _completeness(link: LinkInfo, rows: CountRows, now: int) -> float:
    """Return the share of the last 24 hours' slots that have a count, among those that are over."""
    end = max(now // link.slot_seconds * link.slot_seconds, int(rows[-1, 1]) + link.slot_seconds)
    due = Span(end - SECONDS_A_DAY, end).slots(link.slot_seconds)
    return float(np.count_nonzero(rows[:, 1] >= due.start)) / len(due)


def _local_days(
    link: LinkInfo, newest: int, days: int, begin: datetime | None, end: datetime | None
) -> list[tuple[date, range]]:
    """Return the local days of a span, by default the last up to the newest slot, with the numbers of their slots."""
    last = local_day(link, newest if end is None else unix_seconds(end) - 1)
    if begin is not None:
        days = (last - local_day(link, unix_seconds(begin))).days + 1
        if not 1 <= days <= MOST_DAYS:
            raise Invalid.field("from", rfc_3339(begin), DAYS_RULE)
    dates = [last - timedelta(days=back) for back in reversed(range(days))]
    return [(day, link.grid.local_day(day, link.zone)) for day in dates]


def _is_suspect(link: LinkInfo, judged: JudgedCounts) -> bool:
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


def _days(link: LinkInfo, rows: CountRows, days: Sequence[tuple[date, range]], now: int) -> Iterator[DayCompleteness]:
    numbers = rows[:, 1] // link.slot_seconds
    over = now // link.slot_seconds  # slots before this one have ended
    for day, slots in days:
        first, last = np.searchsorted(numbers, (slots.start, slots.stop))
        kinds = np.bincount(rows[first:last, 3], minlength=len(QUALITIES)).tolist()
        ended = min(max(over, slots.start), slots.stop) - slots.start
        yield DayCompleteness(
            day=day,
            expected=len(slots),
            **dict(zip(QUALITIES, kinds, strict=True)),
            missing=max(0, ended - sum(kinds)),
        )
