"""The service: its routers, its middleware, and what it opens."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from threadpoolctl import threadpool_limits

from app.accuracy import routes as accuracy_routes
from app.counts import import_routes
from app.counts import routes as counts_routes
from app.counts.ingest import IngestContext
from app.dashboard import routes as dashboard_routes
from app.events import routes as events_routes
from app.forecasts import routes as forecasts_routes
from app.health import routes as health_routes
from app.http.problems import add_problem_handlers
from app.http.shedding import Shedding
from app.http.sse import streams_end_on_signals
from app.keys import routes as keys_routes
from app.links import routes as links_routes
from app.registry import routes as registry_routes
from app.server import routes as operations
from app.server.database_metrics import DatabaseMetrics
from app.server.documentation import DESCRIPTION, TAGS, document
from app.server.logs import close_request_log
from app.server.middleware import RequestMiddleware
from app.server.readiness import Readiness
from app.server.resources import running_resources
from app.settings import Settings, settings_from_environment
from app.training import routes as retrain_routes

ROUTERS = (
    forecasts_routes.router,  # first: routes are tried in turn, and forecasts are read most often
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
# What is returned that is packed already or sent bit by bit. Starlette reads its own list of fourteen for each answer.
NO_GZIP = ("image/png", "text/event-stream")
GC_THRESHOLD = 20_000  # new objects before the collector looks at them; 700 by default


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the service; the database's schema must be up to date when it starts."""
    settings = settings or settings_from_environment()
    shedding = Shedding(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running_resources(settings) as resources:
            for name, value in vars(resources).items():
                setattr(app.state, name, value)
            app.state.ingest_context = IngestContext(
                settings, resources.engine, resources.clock, resources.forecast_cache.issue
            )
            app.state.readiness = Readiness(resources)
            app.state.database_metrics = DatabaseMetrics(resources, app.state.readiness, app.version)
            watch = asyncio.create_task(shedding.watch())
            try:
                with streams_end_on_signals():
                    yield
            finally:
                watch.cancel()
        close_request_log()

    app = FastAPI(
        title="Flowcast",
        version=version("flowcast"),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        license_info={"name": "MIT"},
        lifespan=lifespan,
        docs_url=None,  # ours comes from a package and needs no outside request
        redoc_url=None,
        redirect_slashes=False,  # one address for one thing
        telemetry=NO_TELEMETRY,
    )
    # The routers' own routes: include_router would make every route anew, when it is first used.
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    app.state.shedding = shedding
    document(app)
    add_problem_handlers(app)
    # From the innermost to the outermost.
    app.add_middleware(
        GZipMiddleware, minimum_size=LEAST_GZIP_BYTES, compresslevel=GZIP_LEVEL, exclude_content_types=NO_GZIP
    )
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
    """Return the service for a process that does nothing else."""
    app = create_app()
    # The objects made so far stay: the collector would search them during each batch of 10,000 counts, for 100 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)  # models are loaded later; searching a thousand of them takes 70 ms
    threadpool_limits(limits=1)  # matrices are small, and threads would only wait for each other
    return app
