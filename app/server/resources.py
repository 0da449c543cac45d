"""The resources of one process of the service: opened when it starts, refreshed while it runs, closed when it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from app.core import metrics
from app.core.change_feed import ChangeFeed, watch_changes
from app.core.clock import Clock
from app.core.database import open_database, reading
from app.counts.feed_clock import open_clock
from app.forecasts.cache import ForecastCache
from app.keys.cache import ApiKeyCache
from app.registry.loaded_models import LoadedModels
from app.registry.queries import active_models
from app.registry.store import open_store
from app.settings import Settings

log = logging.getLogger("flowcast.resources")

UPKEEP_SECONDS = 5.0
REFRESH_SECONDS = 15.0  # between two refreshes of the forecast cache
AHEAD_SECONDS = 1.0  # that an end waits for a model that is being loaded; a bucket may take longer, and is not awaited


@dataclass(frozen=True)
class Resources:
    """Settings, database, clock, and what is kept in memory: loaded models, latest forecasts, known keys.

    The service keeps them under the same names in ``app.state``, where dependencies of routes find them.
    """

    settings: Settings
    engine: Engine
    change_feed: ChangeFeed
    clock: Clock
    loaded_models: LoadedModels
    forecast_cache: ForecastCache
    api_keys: ApiKeyCache

    def close(self) -> None:
        """Close the database."""
        self.change_feed.close()
        self.engine.dispose()


def open_resources(settings: Settings) -> Resources:
    """Open the database and what is kept in memory; the schema must be up to date."""
    engine = open_database(settings.database_url)
    changes = watch_changes(engine)
    clock = open_clock(engine, changes, settings)
    models = LoadedModels(open_store(settings), most=settings.models_in_memory)
    forecasts = ForecastCache(engine, changes, clock, models, settings)
    return Resources(settings, engine, changes, clock, models, forecasts, ApiKeyCache(engine, settings))


@asynccontextmanager
async def running_resources(settings: Settings) -> AsyncIterator[Resources]:
    """Open resources, refresh them in the background, and close them in the end."""
    resources = await run_in_threadpool(open_resources, settings)
    over = asyncio.Event()
    upkeep = asyncio.create_task(_refresh_until(over, resources))
    ahead = threading.Thread(target=_load_ahead, args=(resources, over.is_set), name="ahead", daemon=True)
    ahead.start()
    try:
        yield resources
    finally:
        over.set()
        await upkeep  # not cancelled: a thread of it would go on with a database that is closed
        ahead.join(timeout=AHEAD_SECONDS)
        await run_in_threadpool(_close, resources)


async def _refresh_until(over: asyncio.Event, resources: Resources) -> None:
    """Refresh the resources every few seconds, so that no request waits for that."""
    refresh_at = 0.0
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), UPKEEP_SECONDS)
            return
        metrics.LOADED_MODELS.set(len(resources.loaded_models))
        await run_in_threadpool(_save_last_use, resources)
        if monotonic() >= refresh_at and not resources.change_feed.unreachable:
            refresh_at = monotonic() + REFRESH_SECONDS
            await run_in_threadpool(_refresh_forecasts, resources)


def _load_ahead(resources: Resources, over: Callable[[], bool]) -> None:
    """Load the active models and learn the profiles of other links; otherwise the first counts would wait for them."""
    try:
        with reading(resources.engine) as session:
            artifacts = [ref for refs in active_models(session).values() for ref in refs]
        resources.loaded_models.load_ahead(artifacts, over)
        resources.forecast_cache.forecaster.profiles.learn_ahead(resources.engine, over)
    except Exception as problem:  # both are done when they are needed
        log.warning("models and profiles were not loaded ahead", exc_info=problem)


def _save_last_use(resources: Resources) -> None:
    try:
        resources.api_keys.save_last_use()
    except SQLAlchemyError as problem:  # not worth stopping for; the next use is stored again
        log.warning("last use of keys was not saved", exc_info=problem)


def _refresh_forecasts(resources: Resources) -> None:
    try:
        resources.forecast_cache.refresh()
        log.debug("forecast cache refreshed", extra={"links": len(resources.forecast_cache.known() or ())})
    except SQLAlchemyError as problem:  # the forecasts in memory stay
        log.warning("the forecast cache was not refreshed", extra={"reason": type(problem).__name__})


def _close(resources: Resources) -> None:
    _save_last_use(resources)
    metrics.remove_process()
    resources.close()
