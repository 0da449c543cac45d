"""Open the clock that the settings name: wall time, or the end of the newest slot."""

from __future__ import annotations

from sqlalchemy import Engine

from app.core.change_feed import ChangeFeed
from app.core.clock import Clock, FeedClock, WallClock
from app.core.database import reading
from app.counts.queries import newest_slot_end
from app.settings import ClockKind, Settings


def open_clock(engine: Engine, changes: ChangeFeed, settings: Settings) -> Clock:
    """Return the clock that the settings name."""
    if settings.clock == ClockKind.WALL:
        return WallClock()

    def newest_end() -> int | None:
        with reading(engine) as session:
            return newest_slot_end(session)

    return FeedClock(newest_end, changes.served_version)
