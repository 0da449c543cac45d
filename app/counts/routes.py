"""``POST /v1/counts``, and the counts of one link: read and delete them."""

from __future__ import annotations

import functools
import json
from time import perf_counter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.exc import OperationalError

from app.core.partitions import lock_denied
from app.counts.history import DeletionReason, count_history, delete_counts
from app.counts.ingest import IngestContext, ingest_counts
from app.counts.parsing import JSON_LINES, batch_schema, parse_counts
from app.counts.schemas import CountPage, DeletedCounts, IngestReport, SlotCount
from app.http.csv import CSV, CsvResponse, csv_content
from app.http.dependencies import ReadSession, WriteSession
from app.http.examples import example_of
from app.http.requests import JSON, From, RequiredFrom, RequiredTo, To, chosen_type, cursor_query, next_page
from app.http.shedding import Shedding
from app.keys.authentication import AdminKey, IngestKey, ReadKey
from app.links.schemas import LinkPath

router = APIRouter(prefix="/v1", tags=["counts"])

# Seconds after which a batch is tried again while a link of it is locked, as by an import; doubled up to the second.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

COLUMNS = list(SlotCount.model_fields)
_ROW = {"link_id": "high-street", "slot_start": "2025-09-15T08:00:00+02:00", "count": 87}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A batch of counts, also compressed with gzip (`Content-Encoding`).",
        "content": {
            JSON: {"schema": batch_schema(), "example": {"counts": [_ROW]}},
            JSON_LINES: {
                "schema": {"type": "string", "format": "counts-jsonl", "description": "A count on each line"},
                "example": json.dumps(_ROW),
            },
            CSV: {
                "schema": {"type": "string", "format": "counts-csv", "description": "Its first line names the columns"},
                "example": "link_id,slot_start,count\nhigh-street,2025-09-15T08:00:00+02:00,87\n",
            },
        },
    }
}


@router.post(
    "/counts",
    response_model=IngestReport,
    summary="Store counts",
    openapi_extra=_BODY,
)
async def post_counts(
    request: Request,
    caller: IngestKey,
    partial: Annotated[bool, Query(description="Store the good counts and report each refused one")] = False,
) -> IngestReport:
    """Store a batch of counts, all or none; a batch sent again changes nothing, and a correction replaces the count.

    The response is sent after the commit. Forecasts are issued for every link whose newest slot moved forward.
    """
    body = await request.body()
    media_type = request.headers.get("content-type", JSON)
    context: IngestContext = request.app.state.ingest_context
    shedding: Shedding = request.app.state.shedding
    # Parsed once, in the thread of the lane, however often storing is tried.
    parse = functools.cache(
        functools.partial(parse_counts, body, media_type, context.settings.max_batch, partial=partial)
    )
    ingest = functools.partial(ingest_counts, context, parse, perf_counter(), partial=partial)
    pause = FIRST_PAUSE
    while True:
        try:
            return await shedding.run_in_lane("ingest", ingest)
        except OperationalError as problem:
            if not lock_denied(problem):
                raise
        # Outside the lane, and with no lock held: batches of other links go on.
        await shedding.pause(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


@router.get(
    "/links/{link_id}/counts",
    response_model=CountPage,
    summary="Counts of a link",
    responses={200: {"content": csv_content(COLUMNS, example_of(SlotCount))}},
)
def list_link_counts(
    _key: ReadKey,
    session: ReadSession,
    request: Request,
    link_id: LinkPath,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Slots in a page, at most")] = 1000,
    cursor: Annotated[str | None, cursor_query("^[0-9]{1,10}$")] = None,
    corrections: Annotated[bool, Query(description="Show the counts that were replaced or deleted, too")] = False,
) -> CountPage | Response:
    """Show every slot from `from` to `to`, gaps as null; by default the last 24 hours up to the newest count.

    `Accept: text/csv` answers in CSV, where a Link header leads to the next page.
    """
    page = count_history(session, link_id, begin, end, limit=limit, cursor=cursor, corrections=corrections)
    if chosen_type(request, JSON, CSV) == CSV:
        rows = (dict(slot) | {"slot_start": f"{slot.slot_start:%Y-%m-%dT%H:%M:%SZ}"} for slot in page.counts)
        return CsvResponse(COLUMNS, rows, next_page(request, page.next_cursor))
    return page


@router.delete("/links/{link_id}/counts", summary="Delete counts of a link")
def delete_link_counts(
    _key: AdminKey,
    session: WriteSession,
    link_id: LinkPath,
    begin: RequiredFrom,
    end: RequiredTo,
    reason: Annotated[
        DeletionReason, Query(description="Why; it is kept with each count", examples=["detector fault"])
    ],
) -> DeletedCounts:
    """Delete the counts of slots that start from `from` to before `to`; they are kept among the corrections.

    The next forecast follows the newest count that is left. On the feed clock, now moves back to the end of that slot.
    """
    return delete_counts(session, link_id, begin, end, reason)
