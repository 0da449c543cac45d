"""Whether this process can serve: database, schema, models, and how fresh the feed is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import exc, select
from sqlalchemy.orm import Session

from app.core.database import reading, takes_writes
from app.core.schema import NEWEST_STEP, schema_step
from app.core.times import instant_of
from app.counts.queries import newest_slots
from app.links.tables import Link
from app.registry.queries import registry_size
from app.server.resources import Resources

log = logging.getLogger("flowcast.readiness")

FRESH_SECONDS = 1.0  # between two reads, so that probes cannot overload the database
MOST_SECONDS = 5.0
MOST_LISTED = 20


@dataclass(frozen=True)
class DatabaseState:
    """Whether the database can be used, and what it stores."""

    trouble: str | None
    step: str | None = None
    newest_slot: datetime | None = None
    newest_end: datetime | None = None
    ends: Mapping[int, int] = field(default_factory=dict)  # of the newest slot of each link that has a count
    links: int = 0
    damaged: tuple[tuple[str, int, str], ...] = ()  # link_id, version, reason
    registry: tuple[int, int] = (0, 0)  # versions, bytes

    @property
    def is_ready(self) -> bool:
        """Return whether requests can be served."""
        return self.trouble is None and self.step == NEWEST_STEP


class Readiness:
    """Reads the state of the database, once a second at most."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._state, self._until = DatabaseState("it was not read yet"), 0.0
        self._lock, self._thread = asyncio.Lock(), CapacityLimiter(1)

    async def state(self) -> DatabaseState:
        """Return the state of the database, now or a moment ago."""
        async with self._lock:
            if monotonic() >= self._until:
                try:
                    async with asyncio.timeout(MOST_SECONDS):
                        # In a thread of its own: probes matter most when the others are busy.
                        self._state = await run_sync(self._read, limiter=self._thread)
                except TimeoutError:
                    self._state = DatabaseState(f"it did not answer within {MOST_SECONDS:.0f} s")
                self._until = monotonic() + FRESH_SECONDS
            return self._state

    def feed_age(self, state: DatabaseState) -> float | None:
        """Return the seconds since the end of the newest slot that has a count."""
        if state.newest_end is None:
            return None
        return max(0.0, (self._resources.clock.now() - state.newest_end).total_seconds())

    def _read(self) -> DatabaseState:
        try:
            step = schema_step(self._resources.engine)
            if step != NEWEST_STEP:
                return DatabaseState(None, step)
            with reading(self._resources.engine) as session:
                if not takes_writes(session):
                    session.invalidate()  # only a new connection can find that it does again
                    return DatabaseState("it takes no writes", step)
                return DatabaseState(None, step, *_feed(session), self._damaged(session), registry_size(session))
        except exc.SQLAlchemyError as problem:
            log.warning("the database failed", exc_info=problem)
            return DatabaseState(f"it failed with {type(problem).__name__}")  # the log has the rest, such as hosts

    def _damaged(self, session: Session) -> tuple[tuple[str, int, str], ...]:
        damaged = self._resources.loaded_models.damaged()
        few = sorted(damaged)[:MOST_LISTED]
        query = select(Link.link_key, Link.link_id).where(Link.link_key.in_({key for key, _ in few}))
        ids = dict(session.execute(query).all())
        return tuple((ids[key], version, damaged[key, version]) for key, version in few if key in ids)


def _feed(session: Session) -> tuple[datetime | None, datetime | None, dict[int, int], int]:
    newest = newest_slots(session)
    minutes = dict(session.execute(select(Link.link_key, Link.slot_minutes)).all())
    ends = {key: slot + 60 * minutes[key] for key, slot in newest.items()}
    if not ends:
        return None, None, ends, len(minutes)
    end, start = max((ends[key], slot) for key, slot in newest.items())
    return instant_of(start), instant_of(end), ends, len(minutes)
