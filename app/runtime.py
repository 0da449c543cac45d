"""What one process of the service holds while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from app.clock import Clock, FeedClock, WallClock
from app.counts.queries import newest_slot_end
from app.database import open_database, reading
from app.forecasts.board import ForecastBoard
from app.keys.ring import KeyRing
from app.registry.loaded import LoadedModels
from app.settings import ClockKind, Settings


@dataclass(frozen=True)
class Runtime:
    """Settings, database, clock, and what is kept in memory: loaded models, latest forecasts, known keys."""

    settings: Settings
    engine: Engine
    clock: Clock
    models: LoadedModels
    board: ForecastBoard
    keys: KeyRing

    def close(self) -> None:
        """Let go of the database."""
        self.board.close()
        self.engine.dispose()


def open_runtime(settings: Settings) -> Runtime:
    """Open the database and get ready to serve; the schema must be up to date."""
    engine = open_database(settings.database_url)
    clock: Clock = WallClock()
    if settings.clock is ClockKind.FEED:
        with reading(engine) as session:
            clock = FeedClock(newest_slot_end(session) or 0)
    models = LoadedModels(settings.model_store, most=settings.models_in_memory)
    board = ForecastBoard(engine, clock, models, settings)
    return Runtime(settings, engine, clock, models, board, KeyRing(engine, settings))
