"""The service: what it is made of, and how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from time import monotonic

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from threadpoolctl import threadpool_limits

from app.accuracy import routes as accuracy_routes
from app.core import metrics
from app.core.database import reading
from app.counts import import_routes
from app.counts import routes as counts_routes
from app.counts.ingest import IngestContext
from app.dashboard import routes as dashboard_routes
from app.events import routes as events_routes
from app.forecasts import routes as forecasts_routes
from app.health import routes as health_routes
from app.http.problem_handlers import add_problem_handlers
from app.http.route_paths import MethodsByPath
from app.http.shedding import Shedding
from app.http.sse import streams_end_on_signals
from app.keys import routes as keys_routes
from app.keys.authentication import AuthenticationMiddleware
from app.links import routes as links_routes
from app.registry import routes as registry_routes
from app.registry.queries import active_models
from app.server import routes as operations
from app.server.bodies import BodyLimitMiddleware
from app.server.database_metrics import DatabaseMetrics
from app.server.documentation import DESCRIPTION, TAGS, document
from app.server.logs import flush_request_log
from app.server.middleware import RequestMiddleware
from app.server.readiness import Readiness
from app.server.resources import Resources, open_resources
from app.settings import Settings, settings_from_environment
from app.training import routes as retrain_routes

log = logging.getLogger("flowcast.main")
VERSION = version("flowcast")

ROUTERS = (
    forecasts_routes.router,  # first: routes are tried in turn, and a forecast is what is asked for most
    links_routes.router,
    counts_routes.router,
    import_routes.router,
    accuracy_routes.router,
    health_routes.router,
    registry_routes.router,
    retrain_routes.router,
    events_routes.router,
    keys_routes.audit_router,
    keys_routes.router,
    keys_routes.own_router,
    operations.router,
    dashboard_routes.router,
)
# RequestMiddleware logs and counts requests. Checking for a tracer costs 3 µs a request.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
LEAST_GZIP_BYTES, GZIP_LEVEL = 1024, 4  # level 4 takes half the time of 6, for a twentieth more bytes
GC_THRESHOLD = 20_000  # new objects before the collector looks at them; 700 by default
UPKEEP_SECONDS = 5.0
REFRESH_SECONDS = 15.0  # between two refreshes of the forecast cache
AHEAD_SECONDS = 1.0  # that an end waits for a model that is being loaded; a bucket may take longer, and is left to it


def create_app(settings: Settings | None = None) -> FastAPI:
    """Make the service; the database's schema must be up to date when it starts."""
    settings = settings or settings_from_environment()
    shedding = Shedding(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        resources = await run_in_threadpool(open_resources, settings)
        for name, value in vars(resources).items():
            setattr(app.state, name, value)
        app.state.ingest_context = IngestContext(
            settings, resources.engine, resources.clock, resources.forecast_cache.issue
        )
        app.state.readiness = Readiness(resources)
        app.state.database_metrics = DatabaseMetrics(resources, app.state.readiness, app.version)
        over = asyncio.Event()
        upkeep, watch = asyncio.create_task(_upkeep(resources, over)), asyncio.create_task(shedding.watch())
        ahead = threading.Thread(target=_load_ahead, args=(resources, over.is_set), name="ahead", daemon=True)
        ahead.start()
        try:
            with streams_end_on_signals():
                yield
        finally:
            watch.cancel()
            over.set()
            await upkeep  # not cancelled: a thread of it would go on at a database that is closed
            ahead.join(timeout=AHEAD_SECONDS)
            await run_in_threadpool(_close, resources)
            flush_request_log()

    app = FastAPI(
        title="Flowcast",
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        license_info={"name": "MIT"},
        lifespan=lifespan,
        docs_url=None,  # ours comes from a package and needs no outside request
        redoc_url=None,
        redirect_slashes=False,  # one address for one thing
        telemetry=NO_TELEMETRY,
    )
    # The routers' own routes: include_router would make every route anew, when it is first asked for.
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    app.state.methods, app.state.shedding = MethodsByPath(ROUTERS), shedding
    document(app)
    add_problem_handlers(app)
    # From the innermost to the outermost: a body is read by the routes, after the key was checked.
    app.add_middleware(GZipMiddleware, minimum_size=LEAST_GZIP_BYTES, compresslevel=GZIP_LEVEL)
    app.add_middleware(AuthenticationMiddleware)
    app.add_middleware(BodyLimitMiddleware, settings=settings, shedding=shedding)
    app.add_middleware(RequestMiddleware, settings=settings, shedding=shedding)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "PUT", "PATCH", "POST", "DELETE"],
            allow_headers=[
                "X-API-Key",
                "Authorization",
                "X-Request-ID",
                "Content-Type",
                "If-None-Match",
                "Last-Event-ID",
            ],
            expose_headers=["X-Request-ID", "Retry-After", "ETag"],
        )
    return app


def create_service() -> FastAPI:
    """Make the service for a process that does nothing else."""
    app = create_app()
    # What was made so far stays for good. Left to the collector, every batch of ten thousand counts would
    # have it look through all of it: 100 ms for nothing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)  # models are loaded later; to look through a thousand of them takes 70 ms
    threadpool_limits(limits=1)  # matrices are small here, and threads that wait for each other lose their turn
    return app


async def _upkeep(resources: Resources, over: asyncio.Event) -> None:
    """Do what no request should wait for, until it is over."""
    refresh_at = 0.0
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), UPKEEP_SECONDS)
            return
        metrics.models_loaded(len(resources.loaded_models))
        if resources.api_keys.has_news:
            await run_in_threadpool(_save_last_use, resources)
        if monotonic() >= refresh_at and not resources.change_feed.away:
            refresh_at = monotonic() + REFRESH_SECONDS
            await run_in_threadpool(_refresh_forecasts, resources)


def _load_ahead(resources: Resources, over: Callable[[], bool]) -> None:
    """Load the active models and learn the profiles of other links; otherwise the first counts would wait for them."""
    try:
        with reading(resources.engine) as session:
            places = active_models(session).values()
        resources.loaded_models.load_ahead(places, over)
        resources.forecast_cache.forecaster.profiles.learn_ahead(resources.engine, over)
    except Exception as problem:  # both are done when they are needed
        log.warning("models and profiles were not loaded ahead", exc_info=problem)


def _save_last_use(resources: Resources) -> None:
    try:
        resources.api_keys.save_last_use()
    except SQLAlchemyError as problem:  # not worth stopping for; the next use is noted again
        log.warning("last use of keys was not saved", exc_info=problem)


def _refresh_forecasts(resources: Resources) -> None:
    try:
        resources.forecast_cache.refresh()
        log.debug("forecasts remembered", extra={"links": len(resources.forecast_cache.known() or ())})
    except SQLAlchemyError as problem:  # what is remembered stays
        log.warning("the forecast cache was not refreshed", extra={"reason": type(problem).__name__})


def _close(resources: Resources) -> None:
    _save_last_use(resources)
    metrics.process_ends()
    resources.close()
