"""Accuracy over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.accuracy.breakdown import LINK_WINDOW, NETWORK_WINDOW
from app.accuracy.measure import CURSOR_PATTERN, link_accuracy, network_accuracy
from app.accuracy.schemas import (
    By,
    LinkAccuracy,
    NetworkAccuracy,
    Order,
    RankedLink,
    Sort,
)
from app.http.csv import CSV, CsvResponse, csv_content
from app.http.dependencies import ReadSession, SettingsDep
from app.http.examples import example_of
from app.http.requests import JSON, From, To, chosen_type, next_page
from app.keys.authentication import ReadKey
from app.links.schemas import LinkPath

router = APIRouter(prefix="/v1", tags=["accuracy"])

Horizon = Annotated[int, Query(ge=1, le=1000, description="Slots ahead")]
FIGURES = [name for name in RankedLink.model_fields if name != "link_id"]
RANKED_COLUMNS = ["link_id", *FIGURES]
LINK_COLUMNS = ["link_id", "from", "to", "horizon", "model_version", *FIGURES, "skill_last_week"]
WINDOW = "How far back from the newest count, in minutes, hours or days: `90m`, `24h`, `7d`"


@router.get(
    "/links/{link_id}/accuracy",
    response_model=LinkAccuracy,
    summary="Accuracy of a link",
    responses={200: {"content": csv_content(LINK_COLUMNS, example_of(LinkAccuracy))}},
)
def get_link_accuracy(
    _key: ReadKey,
    session: ReadSession,
    request: Request,
    settings: SettingsDep,
    link_id: LinkPath,
    window: Annotated[str, Query(pattern=LINK_WINDOW, description=WINDOW, examples=["24h"])] = "24h",
    horizon: Horizon = 1,
    model_version: Annotated[
        int | None, Query(ge=0, le=2**31 - 1, description="Only forecasts of this version; 0 for those without a model")
    ] = None,
    by: Annotated[
        By | None, Query(description="Break down by local hour or day (the newest 2,000), by horizon or by version")
    ] = None,
    begin: From = None,
    end: To = None,
) -> LinkAccuracy | Response:
    """Compare forecasts with the realised counts, over a window up to the newest count or from `from` to `to`.

    `Accept: text/csv` returns one row, or with `by` a row for each part.
    """
    found = link_accuracy(
        session,
        link_id,
        settings.mare_min_count,
        window=window,
        horizon=horizon,
        model_version=model_version,
        by=by,
        begin=begin,
        end=end,
    )
    if chosen_type(request, JSON, CSV) == JSON:
        return found
    rows = [found] if found.series is None else found.series
    return CsvResponse(
        LINK_COLUMNS, ({"link_id": link_id, **row.model_dump(mode="json", by_alias=True)} for row in rows)
    )


@router.get(
    "/accuracy",
    response_model=NetworkAccuracy,
    summary="Accuracy of all links",
    responses={200: {"content": csv_content(RANKED_COLUMNS, example_of(RankedLink))}},
)
def get_network_accuracy(
    _key: ReadKey,
    session: ReadSession,
    request: Request,
    settings: SettingsDep,
    window: Annotated[str, Query(pattern=NETWORK_WINDOW, description=WINDOW, examples=["24h"])] = "24h",
    horizon: Horizon = 1,
    sort: Annotated[Sort, Query(description="Figure to rank links by")] = Sort.RMSE,
    order: Annotated[Order, Query(description="Largest figure first, or smallest")] = Order.DESC,
    limit: Annotated[int, Query(ge=1, le=1000, description="Links in a page, at most")] = 100,
    cursor: Annotated[
        str | None, Query(pattern=CURSOR_PATTERN, description="`next_cursor` of the previous page")
    ] = None,
    begin: From = None,
    end: To = None,
) -> NetworkAccuracy | Response:
    """Compare forecasts with the realised counts over all links, and rank the links.

    Over a window up to the newest count, or from `from` to `to`, at most 42 days. `Accept: text/csv` returns a row
    for each link of the page, where a Link header leads to the next.
    """
    found = network_accuracy(
        session,
        settings.mare_min_count,
        window=window,
        horizon=horizon,
        sort=sort,
        order=order,
        limit=limit,
        cursor=cursor,
        begin=begin,
        end=end,
    )
    if chosen_type(request, JSON, CSV) == JSON:
        return found
    headers = next_page(request, found.next_cursor)
    return CsvResponse(RANKED_COLUMNS, (row.model_dump(mode="json") for row in found.links), headers)
