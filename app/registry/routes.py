"""Trained models over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.http.dependencies import ReadSession
from app.http.requests import cursor_query, next_page
from app.keys.authentication import ReadKey
from app.links.queries import link_or_404
from app.links.schemas import LinkPath
from app.registry.loaded_models import LoadedModelsDep
from app.registry.schemas import ModelList, ModelVersionDetail, VersionPath
from app.registry.show import list_models, show_version

router = APIRouter(prefix="/v1/links/{link_id}/models", tags=["models"])

MOST = 1000
Cursor = Annotated[str | None, cursor_query(r"^[1-9][0-9]{0,8}$")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Trained models in a page, at most")]


@router.get("", summary="Trained models of a link")
def list_link_models(
    _key: ReadKey,
    session: ReadSession,
    models: LoadedModelsDep,
    request: Request,
    response: Response,
    link_id: LinkPath,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> ModelList:
    """List the trained models of a link, the newest first: state, parameters, training span, held-out accuracy."""
    page = list_models(session, models, link_or_404(session, link_id), cursor, limit)
    response.headers.update(next_page(request, page.next_cursor))
    return page


@router.get("/{version}", summary="One trained model")
def get_link_model(
    _key: ReadKey, session: ReadSession, models: LoadedModelsDep, link_id: LinkPath, version: VersionPath
) -> ModelVersionDetail:
    """Return a trained model with the verdicts on its training counts and the lags that matter most."""
    return show_version(session, models, link_or_404(session, link_id), version)
