"""The shelf over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.dependencies import ReadKey, ReadSession, RuntimeDep
from app.links.queries import link_or_404
from app.links.schemas import LinkPath
from app.registry.schemas import Shelf, ShelvedModelDetail, VersionPath
from app.registry.shelf import show_shelf, show_version
from app.web.pages import next_page
from app.web.problems import problem_responses

router = APIRouter(prefix="/v1/links/{link_id}/models", tags=["models"])

MOST = 1000
Cursor = Annotated[
    str | None, Query(pattern=r"^[1-9][0-9]{0,8}$", description="`next_cursor` of the page before, as it came")
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Trained models in a page, at most")]


@router.get("", summary="A link's shelf", responses=problem_responses(404))
def get_models(
    _key: ReadKey,
    session: ReadSession,
    runtime: RuntimeDep,
    request: Request,
    response: Response,
    link_id: LinkPath,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Shelf:
    """List the trained models of a link, the newest first: state, parameters, training span, held-out accuracy."""
    shelf = show_shelf(session, runtime.models, link_or_404(session, link_id), cursor, limit)
    response.headers.update(next_page(request, shelf.next_cursor))
    return shelf


@router.get("/{version}", summary="One trained model", responses=problem_responses(404))
def get_model(
    _key: ReadKey, session: ReadSession, runtime: RuntimeDep, link_id: LinkPath, version: VersionPath
) -> ShelvedModelDetail:
    """Show a trained model: what the shelf says, the verdicts on its training counts, and the lags that matter."""
    return show_version(session, runtime.models, link_or_404(session, link_id), version)
