"""Survey the health of all links: totals by the age of their counts, and a page of them examined."""

from __future__ import annotations

from collections import Counter

import numpy as np
from sqlalchemy.orm import Session

from app.core.times import SECONDS_A_DAY, Span
from app.counts.queries import Rows, newest_slots
from app.counts.verdicts import judge
from app.health.examine import in_doubt
from app.health.feed import Now
from app.health.schemas import FeedTotals, LinkState, NetworkHealth, State, VerdictName
from app.links.queries import LinkInfo, all_links


def network_health(session: Session, after: str | None, limit: int, now: Now) -> NetworkHealth:
    """Examine the links that follow an id, and count all by the age of their newest count."""
    # In Python's order, by which the cursor is compared; a database may sort by its language.
    links, newest = sorted(all_links(session), key=lambda link: link.link_id), newest_slots(session)
    states = Counter(now.state(link, newest.get(link.link_key)) for link in links)
    left = links if after is None else [link for link in links if link.link_id > after]
    page = left[:limit]
    return NetworkHealth(
        totals=FeedTotals(
            links=len(links), live=states[State.OK], stale=states[State.STALE], silent=states[State.SILENT]
        ),
        stale_after_minutes=now.stale_after // 60,
        links=[_examined(session, link, newest.get(link.link_key), now) for link in page],
        next_cursor=page[-1].link_id if len(left) > limit else None,
    )


def _examined(session: Session, link: LinkInfo, newest: int | None, now: Now) -> LinkState:
    if newest is None:
        return LinkState(**now.feed(link, None, False), newest_count=None, completeness=None, verdicts=[])
    judged = judge(session, link, newest, newest, newest)
    found = {verdict.name for verdict in judged.verdicts}
    return LinkState(
        **now.feed(link, newest, in_doubt(link, judged)),
        newest_count=int(judged.rows[-1, 2]),
        completeness=_completeness(link, judged.rows, now),
        verdicts=[name for name in VerdictName if name in found],
    )


def _completeness(link: LinkInfo, rows: Rows, now: Now) -> float:
    """Return the share of the last 24 hours' slots that have a count, among those that are over."""
    end = max(now.second // link.slot_seconds * link.slot_seconds, int(rows[-1, 1]) + link.slot_seconds)
    due = Span(end - SECONDS_A_DAY, end).slots(link.slot_seconds)
    return float(np.count_nonzero(rows[:, 1] >= due.start)) / len(due)
