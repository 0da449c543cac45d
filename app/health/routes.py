"""Health of detectors over REST."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from app.core.times import SECONDS_A_DAY, Span
from app.counts.queries import Rows, newest_slots
from app.counts.verdicts import judge
from app.health.examine import MOST_DAYS, Now, in_doubt, link_health
from app.health.schemas import FeedTotals, LinkHealth, LinkState, NetworkHealth, State, VerdictName
from app.http.dependencies import ClockDep, ReadSession, SettingsDep
from app.http.problems import problem_responses
from app.http.requests import From, To
from app.keys.authentication import ReadKey
from app.links.queries import LinkInfo, all_links
from app.links.schemas import LINK_ID_PATTERN, LinkPath


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


router = APIRouter(prefix="/v1", tags=["health"])


@router.get("/links/{link_id}/health", summary="Health of a link's detector", responses=problem_responses(404))
def get_link_health(
    _key: ReadKey,
    session: ReadSession,
    settings: SettingsDep,
    clock: ClockDep,
    link_id: LinkPath,
    days: Annotated[
        int, Query(ge=1, le=MOST_DAYS, description="Local days, the last that of `to` or of the newest count")
    ] = 28,
    begin: From = None,
    end: To = None,
) -> LinkHealth:
    """Return what is wrong with a link's counts, how complete they are and how old the newest is.

    Of the last days up to the newest count, or of the local days that `from` to `to` touches, at most 366.
    """
    now = Now.at(clock.now(), settings.stale_after_minutes)
    return link_health(session, link_id, days, (begin, end), now)


@router.get("/health", summary="Health of all detectors")
def get_health(
    _key: ReadKey,
    session: ReadSession,
    settings: SettingsDep,
    clock: ClockDep,
    limit: Annotated[int, Query(ge=1, le=500, description="Links in a page, at most")] = 100,
    cursor: Annotated[
        str | None, Query(pattern=LINK_ID_PATTERN, description="`next_cursor` of the page before, as it came")
    ] = None,
) -> NetworkHealth:
    """Count links by the age of their newest count, and examine a page of them."""
    now = Now.at(clock.now(), settings.stale_after_minutes)
    return network_health(session, cursor, limit, now)
