"""Forecasts over REST: of one link, of all, and of the past."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.core.errors import ProblemType, worded
from app.core.slots import MINUTES_A_DAY
from app.core.times import Instant
from app.forecasts.cache import STALE_HEADER, ForecastCache, ForecastCacheDep
from app.forecasts.explain import explained_forecast
from app.forecasts.history import CURSOR, read_experts, read_history
from app.forecasts.issued_forecast import HORIZONS, encode
from app.forecasts.levels import LEVELS, as_row, level_columns, parse_levels
from app.forecasts.listing import NETWORK_CONTENT, network_response, wanted_links
from app.forecasts.options import ForecastOptions, latest_forecast
from app.forecasts.schemas import (
    EXAMPLE,
    EXPERT_COLUMNS,
    EXPERT_ROW,
    LINK_COLUMNS,
    LINK_EXAMPLE,
    PAST_COLUMNS,
    PAST_EXAMPLE,
    ExpertHistory,
    ExplainedForecast,
    LinkForecast,
    NetworkForecast,
    PastForecasts,
    as_expert_row,
)
from app.http.csv import CSV, CsvResponse, csv_content
from app.http.dependencies import ReadSession
from app.http.problems import problem_responses
from app.http.requests import JSON, From, To, chosen_type, next_page
from app.http.shedding import Shedding
from app.keys.authentication import ReadKey
from app.links.schemas import GEOJSON, LINK_ID_PATTERN, LinkPath

router = APIRouter(prefix="/v1", tags=["forecasts"])

LINK_CSV = csv_content(LINK_COLUMNS, LINK_EXAMPLE | EXAMPLE)
Horizons = Annotated[
    int,
    Query(
        ge=1,
        le=MINUTES_A_DAY,
        description="How many slots ahead: horizons 1 to this, at most the slots of 24 hours (96 of 15 minutes). "
        f"Those beyond {HORIZONS} are computed on reading and fade to the profile of the link",
        examples=[1, HORIZONS, 96],
    ),
]
Levels = Annotated[
    str,
    Query(
        pattern=LEVELS,
        description="Levels of the intervals, comma-separated; without it, that of the issued forecast, mostly 0.9",
        examples=["0.5,0.8,0.95"],
    ),
]
# The default of parameters that a query may leave out. Their types have no None, because a query cannot hold a null,
# and because FastAPI takes 3 µs a request to look into a union.
LEFT_OUT: Any = None
STALE = {
    "X-Flowcast-Stale": {
        "description": "Only where `stale` is true",
        "schema": {"type": "string", "enum": ["true"]},
        "required": False,
    }
}


@router.get(
    "/links/{link_id}/forecast",
    summary="Latest forecasts of a link",
    responses={
        200: {"model": LinkForecast | ExplainedForecast, "headers": STALE, "content": LINK_CSV},
        **problem_responses(
            ProblemType.NO_COUNTS,
            ProblemType.TOO_LITTLE_HISTORY,
            ProblemType.AFTER_NEWEST_COUNT,
            ProblemType.UNAVAILABLE,
            ProblemType.OVERLOADED,
            ProblemType.FORECAST_FAILED,
        ),
    },
)
async def get_link_forecast(
    request: Request,
    link_id: LinkPath,
    caller: ReadKey,
    horizon: Horizons = 1,
    level: Levels = LEFT_OUT,
    explain: Annotated[bool, Query(description="Add the experts, the neighbours and the lags that matter")] = False,
    as_of: Annotated[
        Instant,
        Query(
            description="A past slot: the forecast as of then, with the models and weights of now; nothing is stored"
        ),
    ] = LEFT_OUT,
) -> Response:
    """Return what is expected of the slots after the link's newest count, or from now on once that count is too old.

    `Accept: text/csv` returns a row for each horizon; several levels add columns such as `lower_0.5` and `upper_0.5`
    at its end. An explanation exists as JSON only.
    """
    # Not dependencies, because FastAPI takes 50 µs for each, and this call is made most often.
    forecasts: ForecastCache = request.app.state.forecast_cache
    media_type = chosen_type(request, JSON) if explain else chosen_type(request, JSON, CSV)
    levels = parse_levels(level) if level else ()
    document = None
    if horizon <= HORIZONS and not levels and not explain and as_of is None:
        document = forecasts.document(link_id, horizon)
    if document is None:
        shedding: Shedding = request.app.state.shedding
        options = ForecastOptions(horizon, levels)
        if explain or as_of is not None:
            document = await shedding.run_in_lane(
                "forecasts", explained_forecast, forecasts, link_id, options, as_of, explain
            )
        else:
            document = await shedding.run_in_lane("look_up", latest_forecast, forecasts, link_id, options)
    headers = STALE_HEADER if document["stale"] else None
    if media_type == CSV:
        rows = ({"link_id": link_id, **as_row(forecast)} for forecast in document["forecasts"])
        return CsvResponse([*LINK_COLUMNS, *level_columns(levels)], rows, headers)
    return Response(encode(document), headers=headers, media_type=JSON)


@router.get(
    "/forecasts",
    summary="Latest forecasts of all links",
    responses={
        200: {"model": NetworkForecast, "headers": STALE, "content": NETWORK_CONTENT},
        304: {"description": "Nothing changed"},
        **problem_responses(ProblemType.NOT_FOUND),
    },
)
async def list_forecasts(
    request: Request,
    forecasts: ForecastCacheDep,
    caller: ReadKey,
    horizon: Horizons = 1,
    level: Levels = LEFT_OUT,
    links: Annotated[
        str | None,
        Query(
            max_length=100_000,
            pattern=worded(r"^[A-Za-z0-9._:, -]*$", "must be ids of links, separated by commas"),
            description="Only these, comma-separated",
            examples=["Ba,high-street"],
        ),
    ] = None,
    bbox: Annotated[
        str | None,
        Query(
            description="Only links in west,south,east,north, in degrees; across 180° west is larger than east",
            json_schema_extra={"format": "bounding-box"},
            examples=["144.9,-37.9,145.2,-37.8"],
        ),
    ] = None,
    upstream_of: Annotated[
        str | None, Query(pattern=LINK_ID_PATTERN, description="Only links whose traffic runs into this one")
    ] = None,
) -> Response:
    """Return the forecasts of all links in one call; a link without a forecast is listed with its status.

    `horizon` is at most 24 hours of the link with the shortest slots; links with longer ones have fewer horizons.
    `Accept: text/csv` returns a row for each link and horizon, `Accept: application/geo+json` a feature for each link.
    """
    media_type = chosen_type(request, JSON, CSV, GEOJSON)
    options = ForecastOptions(horizon, parse_levels(level))

    def answer() -> Response:
        wanted = wanted_links(forecasts.engine, links, bbox, upstream_of)
        return network_response(forecasts, wanted, options, media_type, request)

    shedding: Shedding = request.app.state.shedding
    return await shedding.run_in_lane("forecasts", answer)


@router.get(
    "/links/{link_id}/forecasts",
    summary="Past forecasts of a link",
    response_model=PastForecasts,
    responses={
        200: {"content": csv_content(PAST_COLUMNS, {"link_id": "Ba"} | PAST_EXAMPLE)},
    },
)
def list_past_forecasts(
    link_id: LinkPath,
    request: Request,
    response: Response,
    session: ReadSession,
    caller: ReadKey,
    begin: From = None,
    end: To = None,
    horizon: Annotated[int | None, Query(ge=1, le=HORIZONS, description="Only this horizon")] = None,
    model_version: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only this version; 0 for none")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Forecasts in a page, at most")] = 1000,
    cursor: Annotated[str | None, Query(pattern=CURSOR, description="`next_cursor` of the previous page")] = None,
) -> PastForecasts | Response:
    """Return past forecasts with the realised counts: by default the last 24 hours up to the newest forecast.

    `Accept: text/csv` answers in CSV. A Link header leads to the next page.
    """
    page = read_history(
        session, link_id, begin, end, horizon=horizon, model_version=model_version, limit=limit, cursor=cursor
    )
    headers = next_page(request, page.next_cursor)
    if chosen_type(request, JSON, CSV) == CSV:
        rows = ({"link_id": link_id, **forecast.model_dump(mode="json")} for forecast in page.forecasts)
        return CsvResponse(PAST_COLUMNS, rows, headers)
    response.headers.update(headers)
    return page


@router.get(
    "/links/{link_id}/experts",
    summary="Weights of a link's experts",
    response_model=ExpertHistory,
    responses={200: {"content": csv_content(EXPERT_COLUMNS, {"link_id": "Ba"} | EXPERT_ROW)}},
)
def list_expert_weights(
    link_id: LinkPath,
    request: Request,
    response: Response,
    session: ReadSession,
    caller: ReadKey,
    begin: From = None,
    end: To = None,
    horizon: Annotated[int, Query(ge=1, le=HORIZONS, description="Slots ahead")] = 1,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Slots in a page, at most")] = 1000,
    cursor: Annotated[str | None, Query(pattern=CURSOR, description="`next_cursor` of the previous page")] = None,
) -> ExpertHistory | Response:
    """Return how a link's experts were weighed and what they expected: by default for the last 24 hours.

    Only slots that were forecast by several experts are listed. `Accept: text/csv` answers in CSV. A Link header leads
    to the next page.
    """
    page = read_experts(session, link_id, begin, end, horizon=horizon, limit=limit, cursor=cursor)
    headers = next_page(request, page.next_cursor)
    if chosen_type(request, JSON, CSV) == CSV:
        rows = ({"link_id": link_id, **as_expert_row(slot)} for slot in page.model_dump(mode="json")["slots"])
        return CsvResponse(EXPERT_COLUMNS, rows, headers)
    response.headers.update(headers)
    return page
