"""Health of detectors over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.health.examine import MOST_DAYS, Freshness, link_health, network_health
from app.health.schemas import LinkHealth, NetworkHealth
from app.http.dependencies import ClockDep, ReadSession, SettingsDep
from app.http.requests import From, To
from app.keys.authentication import ReadKey
from app.links.schemas import LINK_ID_PATTERN, LinkPath

router = APIRouter(prefix="/v1", tags=["health"])


@router.get("/links/{link_id}/health", summary="Health of a link's detector")
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
    freshness = Freshness(int(clock.now().timestamp()), settings.stale_after_minutes)
    return link_health(session, link_id, freshness, days, begin, end)


@router.get("/health", summary="Health of all detectors")
def get_network_health(
    _key: ReadKey,
    session: ReadSession,
    settings: SettingsDep,
    clock: ClockDep,
    limit: Annotated[int, Query(ge=1, le=500, description="Links in a page, at most")] = 100,
    cursor: Annotated[
        str | None, Query(pattern=LINK_ID_PATTERN, description="`next_cursor` of the previous page")
    ] = None,
) -> NetworkHealth:
    """Count links by the age of their newest count, and examine a page of them."""
    freshness = Freshness(int(clock.now().timestamp()), settings.stale_after_minutes)
    return network_health(session, freshness, cursor, limit)
