"""The counts of one link over REST: read and delete them."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from app.core.times import SECONDS_A_DAY, Span, instant_of, read_span
from app.counts.delete import Reason, delete_counts
from app.counts.importers.record import Quality
from app.counts.queries import corrections_between, newest_slots
from app.counts.schemas import CorrectedCount, CountPage, DeletedCounts, ReplacedCount, SlotCount
from app.counts.tables import QUALITIES
from app.counts.verdicts import judge
from app.http.csv import CSV
from app.http.dependencies import ReadSession, WriteSession
from app.http.problems import problem_responses
from app.http.requests import JSON, From, RequiredFrom, RequiredTo, To, chosen_type, next_page
from app.keys.authentication import AdminKey, ReadKey
from app.links.queries import LinkInfo, link_or_404
from app.links.schemas import LinkPath

HEADER = "slot_start,count,quality,verdict\n"


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
    if span is None:
        return _page(link, None, [], None)
    # A cursor holds its own even when a default start has moved on with the newest count.
    start = span.begin if cursor is None else max(int(cursor), span.begin if begin is not None else 0)
    slots = Span(start, span.end).slots(link.slot_seconds)
    page = slots[:limit]
    next_cursor = str(page[-1] + link.slot_seconds) if len(slots) > limit else None
    return _page(link, span, _slots(session, link, newest, page, corrections), next_cursor)


def as_csv(page: CountPage) -> str:
    """Write the slots of a page as CSV; a gap is a row with its time alone."""
    rows = (
        f"{slot.slot_start:%Y-%m-%dT%H:%M:%SZ},{'' if slot.count is None else slot.count},{slot.quality or ''},"
        f"{slot.verdict or ''}\n"
        for slot in page.counts
    )
    return HEADER + "".join(rows)


def _page(
    link: LinkInfo, span: Span | None, slots: list[SlotCount] | list[CorrectedCount], next_cursor: str | None
) -> CountPage:
    begin, end = (None, None) if span is None else (instant_of(span.begin), instant_of(span.end))
    return CountPage.model_construct(
        link_id=link.link_id,
        slot_minutes=link.slot_minutes,
        from_=begin,
        to=end,
        counts=slots,
        next_cursor=next_cursor,
    )


def _slots(
    session: Session, link: LinkInfo, newest: int | None, starts: range, corrections: bool
) -> list[SlotCount] | list[CorrectedCount]:
    if not starts:
        return []
    known = _known(session, link, newest, starts)
    gap = {"count": None, "quality": None, "verdict": None}
    plain = [{"slot_start": instant_of(slot), **known.get(slot, gap)} for slot in starts]
    if not corrections:
        return [SlotCount.model_construct(**fields) for fields in plain]
    replaced = _replaced(session, link, starts)
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
        slot: {
            "count": count,
            "quality": Quality(QUALITIES[quality]),
            "verdict": verdicts.get(slot // link.slot_seconds),
        }
        for _, slot, count, quality in judged.rows.tolist()
        if starts[0] <= slot <= starts[-1]
    }


def _replaced(session: Session, link: LinkInfo, starts: range) -> defaultdict[int, list[ReplacedCount]]:
    found = defaultdict(list)
    for row in corrections_between(session, link.link_key, starts[0], starts[-1]):
        quality = Quality(QUALITIES[row.quality])
        found[row.slot_start].append(
            ReplacedCount(count=row.count, quality=quality, replaced_at=row.replaced_at, reason=row.reason)
        )
    return found


router = APIRouter(prefix="/v1/links/{link_id}", tags=["counts"])

CSV_ANSWER: dict[str, Any] = {
    "content": {
        CSV: {
            "schema": {"type": "string"},
            "example": "slot_start,count,quality,verdict\n2025-09-01T08:00:00Z,121,observed,\n",
        }
    }
}


@router.get(
    "/counts",
    response_model=CountPage,
    summary="Counts of a link",
    responses={200: CSV_ANSWER, **problem_responses(404)},
)
def get_counts(
    _key: ReadKey,
    session: ReadSession,
    request: Request,
    link_id: LinkPath,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Slots in a page, at most")] = 1000,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9]{1,10}$", description="`next_cursor` of the page before, as it came")
    ] = None,
    corrections: Annotated[bool, Query(description="Show the counts that were replaced or deleted, too")] = False,
) -> CountPage | Response:
    """Show every slot from `from` to `to`, gaps as null; by default the last 24 hours up to the newest count.

    `Accept: text/csv` answers in CSV, where a Link header leads to the next page.
    """
    page = count_history(session, link_id, begin, end, limit=limit, cursor=cursor, corrections=corrections)
    if chosen_type(request, JSON, CSV) == CSV:
        return Response(as_csv(page), media_type=CSV, headers=next_page(request, page.next_cursor))
    return page


@router.delete("/counts", summary="Delete counts of a link", responses=problem_responses(404))
def delete_some_counts(
    _key: AdminKey,
    session: WriteSession,
    link_id: LinkPath,
    begin: RequiredFrom,
    end: RequiredTo,
    reason: Annotated[Reason, Query(description="Why; it is kept with each count", examples=["detector fault"])],
) -> DeletedCounts:
    """Delete the counts of slots that start from `from` to before `to`; they are kept among the corrections.

    The next forecast follows the newest count that is left. On the feed clock, now moves back to the end of that slot.
    """
    return delete_counts(session, link_id, begin, end, reason)
