"""What one process of the service opens when it starts."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from app.core.change_feed import ChangeFeed, watch_changes
from app.core.clock import Clock
from app.core.database import open_database
from app.counts.feed_clock import open_clock
from app.forecasts.cache import ForecastCache
from app.keys.cache import ApiKeyCache
from app.registry.loaded_models import LoadedModels
from app.registry.store import open_store
from app.settings import Settings


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
