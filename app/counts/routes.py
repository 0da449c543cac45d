"""``POST /v1/counts``: counts in."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from time import perf_counter, time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy.exc import OperationalError

from app.core import metrics
from app.core.database import Change, record_change, writing
from app.core.partitions import lock_denied
from app.counts.ingest import (
    Batch,
    IngestContext,
    IngestContextDep,
    Refused,
    Stored,
    check_batch,
    moved_ends,
    store_counts,
)
from app.counts.parsing import CSV, JSON, JSON_LINES, batch_schema, read_batch, refuse_all
from app.counts.schemas import IngestReport, RefusedCount
from app.http.problems import problem_responses
from app.http.shedding import Shedding
from app.keys.authentication import IngestKey
from app.settings import ClockKind

log = logging.getLogger("flowcast.counts")
router = APIRouter(prefix="/v1", tags=["counts"])

# Seconds after which a batch is tried again while a link of it is locked, as by an import; doubled up to the second.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

_ROW = {"link_id": "0970-7", "slot_start": "2006-10-02T10:15:00+10:00", "count": 42}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A batch of counts; gzip by `Content-Encoding` is welcome.",
        "content": {
            JSON: {"schema": batch_schema(), "example": {"counts": [_ROW]}},
            JSON_LINES: {
                "schema": {"type": "string", "format": "counts-jsonl", "description": "A count on each line"},
                "example": '{"link_id": "0970-7", "slot_start": "2006-10-02T10:15:00+10:00", "count": 42}',
            },
            CSV: {
                "schema": {"type": "string", "format": "counts-csv", "description": "Its first line names the columns"},
                "example": "link_id,slot_start,count\n0970-7,2006-10-02T00:15:00Z,42\n",
            },
        },
    }
}


@router.post(
    "/counts", response_model=IngestReport, responses=problem_responses(413, 415), openapi_extra=_BODY, status_code=200
)
async def post_counts(
    request: Request,
    context: IngestContextDep,
    caller: IngestKey,
    partial: Annotated[bool, Query(description="Store the good counts and report each refused one")] = False,
) -> IngestReport:
    """Store a batch of counts, all or nothing; sent twice it changes nothing, a correction replaces.

    The answer leaves after the commit. Forecasts are issued for every link whose newest slot moved forward.
    """
    body = await request.body()
    media_type = request.headers.get("content-type", JSON)
    shedding: Shedding = request.app.state.shedding
    # Read once, however often it is tried.
    read = functools.cache(lambda: read_batch(body, media_type, context.settings.max_batch, partial=partial))
    arrived, pause = perf_counter(), FIRST_PAUSE
    while True:
        try:
            return await shedding.run_in_lane("ingest", _ingest, context, read, partial, arrived)
        except OperationalError as problem:
            if not lock_denied(problem):
                raise
        # Outside the lane, and with no lock held: batches of other links go on.
        await shedding.pause(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _ingest(
    context: IngestContext, read: Callable[[], tuple[Batch, list[Refused]]], partial: bool, arrived: float
) -> IngestReport:
    batch, refused = read()
    with writing(context.engine) as session:
        checked = check_batch(session, batch, context.clock)
        if checked.refused and not partial:
            raise refuse_all(checked.refused, len(batch.link_ids))
        stored = store_counts(session, checked, wait=False)
        record_change(session, Change.COUNTS, [link.link_key for link in stored.moved])
    metrics.COUNTS_STORED.inc(stored.new + stored.replaced)
    if context.settings.clock is ClockKind.WALL:  # a replay makes its own time, in which nothing is late
        now = time()
        for end in moved_ends(stored):
            metrics.INGEST_LAG_SECONDS.observe(max(0.0, now - end))
    return IngestReport(
        received=len(batch.link_ids) + len(refused),
        stored=stored.new,
        replaced=stored.replaced,
        unchanged=stored.unchanged,
        refused=_listed([*refused, *checked.refused]),
        forecasts_issued=_issue(context, stored, arrived),
    )


def _issue(context: IngestContext, stored: Stored, arrived: float) -> int:
    if not stored.moved:
        return 0
    try:
        issued = context.issue_forecasts(stored.moved, stored.rows)
    except Exception:  # the counts are stored and must be acknowledged; the forecast is made when it is asked for
        log.exception("forecasts were not issued")
        metrics.FAILED_ISSUES.inc()
        return 0
    metrics.ISSUE_SECONDS.observe(perf_counter() - arrived)
    return issued


def _listed(refused: list[Refused]) -> list[RefusedCount]:
    return [
        RefusedCount(
            index=one.place,
            link_id=one.link_id,
            slot_start=one.slot_start,
            field=one.error.field,
            value=one.error.value,
            reason=one.error.reason,
        )
        for one in sorted(refused)
    ]
