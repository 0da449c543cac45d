"""Read the stored counts of a link slot by slot, with their corrections, and delete them."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import StringConstraints
from sqlalchemy import delete, insert, literal, select
from sqlalchemy.orm import Session

from app.core.database import UtcDateTime
from app.core.times import SECONDS_A_DAY, Span, instant_of, read_span
from app.counts.queries import corrections_between, lock_links, newest_slots, number_of_counts, slots_in
from app.counts.schemas import CorrectedCount, CountPage, DeletedCounts, ReplacedCount, SlotCount
from app.counts.tables import QUALITIES, Count, CountCorrection
from app.counts.verdicts import judge
from app.links.queries import LinkInfo, link_or_404, lock_link_table, stored_link
from app.links.schemas import NO_NUL

LONGEST_REASON = 500
DeletionReason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_REASON, pattern=NO_NUL)
]


def count_history(
    session: Session,
    link_id: str,
    begin: datetime | None,
    end: datetime | None,
    *,
    limit: int,
    cursor: str | None,
    corrections: bool,
) -> CountPage:
    """Return the slots from ``begin`` to ``end``; by default the last 24 hours up to the newest count."""
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    newest_end = None if newest is None else newest + link.slot_seconds
    span = read_span(begin, end, newest_end, SECONDS_A_DAY)
    slots: range = range(0)
    if span is not None:
        # A cursor stays valid even when a default start has moved on with the newest count.
        start = span.begin if cursor is None else max(int(cursor), span.begin if begin is not None else 0)
        slots = Span(start, span.end).slots(link.slot_seconds)
    page = slots[:limit]
    return CountPage.model_construct(
        link_id=link.link_id,
        slot_minutes=link.slot_minutes,
        from_=span and instant_of(span.begin),
        to=span and instant_of(span.end),
        counts=_slots(session, link, newest, page, corrections) if page else [],
        next_cursor=str(page[-1] + link.slot_seconds) if len(slots) > limit else None,
    )


def delete_counts(session: Session, link_id: str, begin: datetime, end: datetime, reason: str) -> DeletedCounts:
    """Delete the counts of slots that start from ``begin`` to before ``end``; corrections keep them, with the reason.

    Forecasts that were computed from them stay in history; those that are served are computed anew, in every process.
    """
    lock_link_table(session)  # before the row, as those do who change links: otherwise each could wait for the other
    link = link_or_404(session, link_id)
    span = read_span(begin, end, None, 0)
    assert span is not None
    lock_links(session, [link.link_key])
    chosen = slots_in(link.link_key, span)
    kept: list[Any] = [Count.link_key, Count.slot_start, Count.count, Count.quality]
    rows = select(*kept, literal(datetime.now(UTC), UtcDateTime), literal(reason)).where(chosen)
    names = ["link_key", "slot_start", "count", "quality", "replaced_at", "reason"]
    session.execute(insert(CountCorrection).from_select(names, rows.order_by(Count.slot_start)))
    deleted = number_of_counts(session, link.link_key, span)
    session.execute(delete(Count).where(chosen))
    if deleted:
        stored_link(session, link_id).forecasts_valid_from = time.time_ns() // 1000
    session.flush()
    return DeletedCounts(link_id=link_id, from_=begin, to=end, reason=reason, deleted=deleted)


def _slots(
    session: Session, link: LinkInfo, newest: int | None, starts: range, corrections: bool
) -> list[SlotCount] | list[CorrectedCount]:
    known = _known(session, link, newest, starts)
    gap = {"count": None, "quality": None, "verdict": None}
    plain = [{"slot_start": instant_of(slot), **known.get(slot, gap)} for slot in starts]
    if not corrections:
        return [SlotCount.model_construct(**fields) for fields in plain]
    replaced = defaultdict(list)
    for row in corrections_between(session, link.link_key, starts[0], starts[-1]):
        replaced[row.slot_start].append(
            ReplacedCount(
                count=row.count, quality=QUALITIES[row.quality], replaced_at=row.replaced_at, reason=row.reason
            )
        )
    return [
        CorrectedCount.model_construct(**fields, corrections=replaced[slot])
        for slot, fields in zip(starts, plain, strict=True)
    ]


def _known(session: Session, link: LinkInfo, newest: int | None, starts: range) -> dict[int, dict[str, Any]]:
    """Return count, quality and verdict of the slots that have a count, by Unix second."""
    if newest is None or starts[0] > newest:
        return {}
    judged = judge(session, link, newest, starts[0], starts[-1])
    verdicts = judged.by_slot()
    return {
        slot: {"count": count, "quality": QUALITIES[quality], "verdict": verdicts.get(slot // link.slot_seconds)}
        for _, slot, count, quality in judged.rows.tolist()
        if starts[0] <= slot <= starts[-1]
    }
