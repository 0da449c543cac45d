"""What one process of the service holds while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from app.changes import Changes, watch_changes
from app.clock import Clock, FeedClock, WallClock
from app.counts.queries import newest_slot_end
from app.database import open_database, reading
from app.forecasts.board import ForecastBoard
from app.keys.ring import KeyRing
from app.registry.loaded import LoadedModels
from app.registry.open_store import open_store
from app.settings import ClockKind, Settings


@dataclass(frozen=True)
class Runtime:
    """Settings, database, clock, and what is kept in memory: loaded models, latest forecasts, known keys."""

    settings: Settings
    engine: Engine
    changes: Changes
    clock: Clock
    models: LoadedModels
    board: ForecastBoard
    keys: KeyRing

    def close(self) -> None:
        """Let go of the database."""
        self.changes.close()
        self.board.close()
        self.engine.dispose()


def open_runtime(settings: Settings) -> Runtime:
    """Open the database and get ready to serve; the schema must be up to date."""
    engine = open_database(settings.database_url)
    changes = watch_changes(engine)
    clock = clock_of(engine, changes, settings)
    models = LoadedModels(open_store(settings), most=settings.models_in_memory)
    board = ForecastBoard(engine, changes, clock, models, settings)
    return Runtime(settings, engine, changes, clock, models, board, KeyRing(engine, settings))


def clock_of(engine: Engine, changes: Changes, settings: Settings) -> Clock:
    """Give the clock that the settings name."""
    if settings.clock == ClockKind.WALL:
        return WallClock()

    def newest_end() -> int | None:
        with reading(engine) as session:
            return newest_slot_end(session)

    return FeedClock(newest_end, changes.served_stamp)
