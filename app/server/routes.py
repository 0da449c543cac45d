"""Routes for those who run the service: probes, metrics, and the documentation of the API."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, cast

import fastapi_offline
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, HTMLResponse

from app.core.errors import NotFound
from app.core.metrics import LOADED_MODELS, metrics_page
from app.core.schema import NEWEST_STEP
from app.forecasts.cache import ForecastCacheDep
from app.http.problems import RETRY_SECONDS
from app.registry.loaded_models import LoadedModelsDep
from app.server.database_metrics import DatabaseMetrics
from app.server.readiness import DatabaseState, Readiness

router = APIRouter(tags=["operations"])

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


ReadyStatus = Literal["ready", "degraded", "unavailable"]
ForecastsStatus = Literal["ready", "stale", "unavailable"]


class Alive(BaseModel):
    """A process that answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "alive"}]})

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
    """The freshness of the counts."""

    newest_slot: datetime | None
    age_seconds: Annotated[float | None, Field(description="Since the end of the newest slot")]


class Ready(BaseModel):
    """Whether requests can be served, and why not."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "status": "ready",
                    "version": "0.1.0",
                    "database": {"ok": True, "reason": None},
                    "schema": {"ok": True, "step": NEWEST_STEP, "newest_step": NEWEST_STEP},
                    "models": {
                        "ok": True,
                        "loaded": 24,
                        "n_damaged": 0,
                        "damaged": [],
                        "shelf": {"versions": 24, "size_bytes": 4423680},
                    },
                    "feed": {"newest_slot": "2025-09-26T06:30:00Z", "age_seconds": 320.0},
                }
            ]
        }
    )

    status: Annotated[
        ReadyStatus,
        Field(description="degraded: requests are served, but an artifact is damaged"),
    ]
    version: str
    database: DatabaseCheck
    db_schema: Annotated[SchemaCheck, Field(serialization_alias="schema")]
    models: ModelsCheck
    feed: FeedCheck


class ForecastsReady(BaseModel):
    """Whether forecasts can be answered."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"status": "ready", "database": {"ok": True, "reason": None}}]}
    )

    status: Annotated[
        ForecastsStatus,
        Field(description="stale: from memory, because the database cannot be used"),
    ]
    database: DatabaseCheck


@router.get("/livez", summary="Liveness")
async def get_liveness() -> Alive:
    """Return that the process is alive, without using the database."""
    return Alive()


@router.get(
    "/readyz",
    summary="Readiness",
    responses={503: {"model": Ready, "description": "The database or its schema is not in order"}},
)
async def get_readiness(request: Request, response: Response, models: LoadedModelsDep) -> Ready:
    """Return whether requests can be served, and how fresh the feed is."""
    readiness: Readiness = request.app.state.readiness
    state = await readiness.state()
    damaged = [DamagedModel(link_id=link, version=number, reason=why) for link, number, why in state.damaged]
    status: ReadyStatus = "unavailable" if not state.is_ready else "degraded" if damaged else "ready"
    _set_headers(response, status)
    return Ready(
        status=status,
        version=request.app.version,
        database=_database_check(state),
        db_schema=SchemaCheck(ok=state.step == NEWEST_STEP, step=state.step, newest_step=NEWEST_STEP),
        models=ModelsCheck(
            ok=not damaged,
            loaded=len(models),
            n_damaged=len(models.damaged()),
            damaged=damaged,
            shelf=RegistrySize(versions=state.registry[0], size_bytes=state.registry[1]),
        ),
        feed=FeedCheck(newest_slot=state.newest_slot, age_seconds=readiness.feed_age(state)),
    )


@router.get(
    "/readyz/forecasts",
    summary="Readiness for forecasts",
    responses={503: {"model": ForecastsReady, "description": "Forecasts cannot be answered"}},
)
async def get_forecasts_readiness(request: Request, response: Response, forecasts: ForecastCacheDep) -> ForecastsReady:
    """Return whether forecasts can be answered, also from memory while the database cannot be used."""
    state = await cast(Readiness, request.app.state.readiness).state()
    in_memory = state.trouble is not None and forecasts.known() is not None
    status: ForecastsStatus = "ready" if state.is_ready else "stale" if in_memory else "unavailable"
    _set_headers(response, status)
    return ForecastsReady(status=status, database=_database_check(state))


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": "flowcast_ready 1.0\n"}}}},
)
async def get_metrics(request: Request, models: LoadedModelsDep) -> Response:
    """Return the metrics of all processes of the service in Prometheus' text format."""
    LOADED_MODELS.set(len(models))
    database_metrics: DatabaseMetrics = request.app.state.database_metrics
    return Response(metrics_page(await database_metrics.families()), media_type=EXPOSITION)


@router.get("/docs", include_in_schema=False)
async def docs() -> HTMLResponse:
    """Return a page that shows the API; nothing is fetched from elsewhere."""
    return HTMLResponse(DOCS_PAGE, headers={"Content-Security-Policy": DOCS_POLICY})


@router.get("/docs/{file}", include_in_schema=False)
async def docs_file(file: str) -> FileResponse:
    """Return a file of the page."""
    if file not in DOCS_FILES:
        raise NotFound(f"there is no {file!r} here")
    folder, media_type = DOCS_FILES[file]
    return FileResponse(folder / file, media_type=media_type, headers={"Cache-Control": "max-age=3600"})


def _set_headers(response: Response, status: str) -> None:
    response.headers["Cache-Control"] = "no-store"
    if status == "unavailable":
        response.status_code = 503
        response.headers["Retry-After"] = RETRY_SECONDS


def _database_check(state: DatabaseState) -> DatabaseCheck:
    return DatabaseCheck(ok=state.trouble is None, reason=state.trouble)
