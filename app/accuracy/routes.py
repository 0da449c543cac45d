"""Accuracy over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.accuracy.measure import Question, link_accuracy
from app.accuracy.rank import CURSOR_PATTERN, Ranking, network_accuracy
from app.accuracy.schemas import By, LinkAccuracy, NetworkAccuracy, Order, Sort
from app.accuracy.window import LINK_WINDOW, NETWORK_WINDOW
from app.dependencies import ReadKey, ReadSession, RuntimeDep
from app.links.schemas import LinkPath
from app.web.problems import problem_responses
from app.web.spans import From, To

router = APIRouter(prefix="/v1", tags=["accuracy"])

Horizon = Annotated[int, Query(ge=1, le=1000, description="Slots ahead")]
WINDOW = "How far back from the newest count, in minutes, hours or days: `90m`, `24h`, `7d`"


@router.get("/links/{link_id}/accuracy", summary="Accuracy of a link", responses=problem_responses(404))
def get_link_accuracy(
    _key: ReadKey,
    session: ReadSession,
    runtime: RuntimeDep,
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
) -> LinkAccuracy:
    """Compare what was forecast with what came, over a window up to the newest count or from `from` to `to`."""
    asked = Question(window, horizon, model_version, by, begin, end)
    return link_accuracy(session, link_id, asked, runtime.settings.mare_min_count)


@router.get("/accuracy", summary="Accuracy of all links")
def get_accuracy(
    _key: ReadKey,
    session: ReadSession,
    runtime: RuntimeDep,
    window: Annotated[str, Query(pattern=NETWORK_WINDOW, description=WINDOW, examples=["24h"])] = "24h",
    horizon: Horizon = 1,
    sort: Annotated[Sort, Query(description="Figure to rank links by")] = Sort.RMSE,
    order: Annotated[Order, Query(description="Largest figure first, or smallest")] = Order.DESC,
    limit: Annotated[int, Query(ge=1, le=1000, description="Links in a page, at most")] = 100,
    cursor: Annotated[
        str | None, Query(pattern=CURSOR_PATTERN, description="`next_cursor` of the page before, as it came")
    ] = None,
) -> NetworkAccuracy:
    """Compare what was forecast with what came over all links, and rank them."""
    asked = Ranking(window, horizon, sort, order, limit, cursor)
    return network_accuracy(session, asked, runtime.settings.mare_min_count)
