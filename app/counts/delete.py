"""Delete counts of a link; they are kept among the corrections, with the reason."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import StringConstraints
from sqlalchemy import delete, insert, literal, select
from sqlalchemy.orm import Session

from app.core.database import UtcDateTime
from app.core.times import read_span
from app.counts.queries import lock_links, number_of_counts, slots_in
from app.counts.schemas import DeletedCounts
from app.counts.tables import Count, CountCorrection
from app.links.queries import link_or_404, lock_link_table, stored_link
from app.links.schemas import NO_NUL

LONGEST_REASON = 500
Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_REASON, pattern=NO_NUL)
]


def delete_counts(session: Session, link_id: str, begin: datetime, end: datetime, reason: str) -> DeletedCounts:
    """Delete the counts of slots that start from ``begin`` to before ``end``.

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
