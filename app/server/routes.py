"""For those who run the service: is it alive, is it ready, what does it do, how is it used."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, cast

import fastapi_offline
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import FileResponse, HTMLResponse

from app.core import metrics
from app.core.errors import NotFound
from app.forecasts.cache import ForecastCacheDep
from app.registry.loaded_models import LoadedModels, LoadedModelsDep
from app.server.database_metrics import DatabaseMetrics
from app.server.readiness import Readiness, Stored

router = APIRouter(tags=["operations"])

VERSION = version("flowcast")
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
SWAGGER = Path(fastapi_offline.__file__).parent / "static"
OWN = Path(__file__).parent / "static"
DOCS_FILES = {
    "swagger-ui.css": (SWAGGER, "text/css"),
    "swagger-ui-bundle.js": (SWAGGER, "text/javascript"),
    "favicon.png": (SWAGGER, "image/png"),
    "docs.js": (OWN, "text/javascript"),
}
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Addresses are relative, so that the page works below any --root-path.
DOCS_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Flowcast API</title>
<link rel="icon" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/docs.js"></script>
</body>
</html>
"""


class Alive(BaseModel):
    """A sign of life."""

    status: Literal["alive"] = "alive"


class DatabaseCheck(BaseModel):
    """Whether the database answers."""

    ok: bool
    reason: str | None


class SchemaCheck(BaseModel):
    """Whether the database's schema is the one the code expects."""

    ok: bool
    step: str | None
    newest_step: str | None


class DamagedModel(BaseModel):
    """An artifact that cannot be used; an older one or the profile replaces it."""

    link_id: str
    version: int
    reason: str


class RegistrySize(BaseModel):
    """All trained models on disk."""

    versions: int
    size_bytes: int


class ModelsCheck(BaseModel):
    """Trained models in the memory of this process, and on disk."""

    ok: bool
    loaded: int
    n_damaged: int
    damaged: Annotated[list[DamagedModel], Field(description="The first 20")]
    shelf: RegistrySize


class FeedCheck(BaseModel):
    """How fresh the counts are."""

    newest_slot: datetime | None
    age_seconds: Annotated[float | None, Field(description="Since the end of the newest slot")]


class Ready(BaseModel):
    """Whether requests can be served, and why not."""

    status: Annotated[
        Literal["ready", "degraded", "unavailable"],
        Field(description="degraded: it serves, but an artifact is damaged"),
    ]
    version: str
    database: DatabaseCheck
    db_schema: Annotated[SchemaCheck, Field(serialization_alias="schema")]
    models: ModelsCheck
    feed: FeedCheck


class ForecastsReady(BaseModel):
    """Whether forecasts can be answered."""

    status: Annotated[
        Literal["ready", "stale", "unavailable"],
        Field(description="stale: from memory, because the database cannot be used"),
    ]
    database: DatabaseCheck


@router.get("/livez", summary="Alive?")
async def livez() -> Alive:
    """Return that the process is alive, without asking the database."""
    return Alive()


@router.get(
    "/readyz",
    summary="Ready?",
    responses={503: {"model": Ready, "description": "The database or its schema is not in order"}},
)
async def readyz(request: Request, response: Response, models: LoadedModelsDep) -> Ready:
    """Return whether requests can be served, and how fresh the feed is."""
    readiness = _readiness(request)
    stored = await readiness.ask()
    told = _told(readiness, stored, models)
    if told.status == "unavailable":
        response.status_code = 503
        response.headers["Retry-After"] = "5"
    response.headers["Cache-Control"] = "no-store"
    return told


@router.get(
    "/readyz/forecasts",
    summary="Ready for forecasts?",
    responses={503: {"model": ForecastsReady, "description": "Forecasts cannot be answered"}},
)
async def readyz_forecasts(request: Request, response: Response, forecasts: ForecastCacheDep) -> ForecastsReady:
    """Return whether forecasts can be answered, also from memory while the database cannot be used."""
    readiness = _readiness(request)
    stored = await readiness.ask()
    status: Literal["ready", "stale", "unavailable"] = "unavailable"
    if readiness.is_ready(stored):
        status = "ready"
    elif stored.trouble is not None and forecasts.known() is not None:
        status = "stale"
    if status == "unavailable":
        response.status_code = 503
        response.headers["Retry-After"] = "5"
    response.headers["Cache-Control"] = "no-store"
    return ForecastsReady(status=status, database=_database_check(stored))


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
async def prometheus_metrics(request: Request, models: LoadedModelsDep) -> Response:
    """Return the metrics of all processes of the service in Prometheus' text format."""
    metrics.models_loaded(len(models))
    database_metrics = cast(DatabaseMetrics, request.app.state.database_metrics)
    return Response(metrics.page(await database_metrics.families()), media_type=EXPOSITION)


@router.get("/docs", include_in_schema=False)
async def docs() -> HTMLResponse:
    """Show the API in the browser; nothing is fetched from elsewhere."""
    return HTMLResponse(DOCS_PAGE, headers={"Content-Security-Policy": DOCS_POLICY})


@router.get("/docs/{file}", include_in_schema=False)
async def docs_file(file: str) -> FileResponse:
    """Return what the page is made of."""
    if file not in DOCS_FILES:
        raise NotFound(f"there is no {file!r} here")
    folder, media_type = DOCS_FILES[file]
    return FileResponse(folder / file, media_type=media_type, headers={"Cache-Control": "max-age=3600"})


def _readiness(request: Request) -> Readiness:
    return cast(Readiness, request.app.state.readiness)


def _database_check(stored: Stored) -> DatabaseCheck:
    return DatabaseCheck(ok=stored.trouble is None, reason=stored.trouble)


def _told(readiness: Readiness, stored: Stored, models: LoadedModels) -> Ready:
    damaged = [DamagedModel(link_id=link, version=number, reason=why) for link, number, why in stored.damaged]
    status: Literal["ready", "degraded"] = "degraded" if damaged else "ready"
    return Ready(
        status=status if readiness.is_ready(stored) else "unavailable",
        version=VERSION,
        database=_database_check(stored),
        db_schema=SchemaCheck(
            ok=stored.step == readiness.newest_step, step=stored.step, newest_step=readiness.newest_step
        ),
        models=ModelsCheck(
            ok=not damaged,
            loaded=len(models),
            n_damaged=len(models.damaged()),
            damaged=damaged,
            shelf=RegistrySize(versions=stored.registry[0], size_bytes=stored.registry[1]),
        ),
        feed=FeedCheck(newest_slot=stored.newest_slot, age_seconds=readiness.feed_age(stored)),
    )
