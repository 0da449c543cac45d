"""The counts of one link over REST: read and delete them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.counts.delete import Reason, delete_counts
from app.counts.history import as_csv, count_history
from app.counts.schemas import CountPage, DeletedCounts
from app.http.dependencies import ReadSession, WriteSession
from app.http.media_types import CSV, JSON, chosen_type
from app.http.pagination import next_page
from app.http.problems import problem_responses
from app.http.query_types import From, RequiredFrom, RequiredTo, To
from app.keys.dependencies import AdminKey, ReadKey
from app.links.schemas import LinkPath

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
