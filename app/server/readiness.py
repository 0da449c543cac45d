"""Whether this process can serve: database, schema, models, and how fresh the feed is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import exc, select
from sqlalchemy.orm import Session

from app.core.database import reading, takes_writes
from app.core.schema import NEWEST_STEP, schema_step
from app.counts.queries import newest_slots
from app.links.tables import Link
from app.registry.queries import registry_size
from app.server.resources import Resources

log = logging.getLogger("flowcast.readiness")

FRESH_SECONDS = 1.0  # probes cannot hammer the database
MOST_SECONDS = 5.0
MOST_LISTED = 20


@dataclass(frozen=True)
class Stored:
    """The state of the database."""

    trouble: str | None
    step: str | None = None
    newest_slot: datetime | None = None
    newest_end: datetime | None = None
    ends: Mapping[int, int] = field(default_factory=dict)  # of the newest slot of each link that has a count
    links: int = 0
    damaged: tuple[tuple[str, int, str], ...] = ()  # link_id, version, reason
    registry: tuple[int, int] = (0, 0)  # versions, bytes


class Readiness:
    """Asks the database once a second at most, however often it is asked itself."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._stored, self._until = Stored("it was not asked yet"), 0.0
        self._lock, self._thread = asyncio.Lock(), CapacityLimiter(1)

    async def ask(self) -> Stored:
        """Return the state of the database, now or a moment ago."""
        async with self._lock:
            if monotonic() >= self._until:
                try:
                    async with asyncio.timeout(MOST_SECONDS):
                        # In a thread of its own: it is asked most when the others are busy.
                        self._stored = await run_sync(self._look, limiter=self._thread)
                except TimeoutError:
                    self._stored = Stored(f"it did not answer within {MOST_SECONDS:.0f} s")
                self._until = monotonic() + FRESH_SECONDS
            return self._stored

    def is_ready(self, stored: Stored) -> bool:
        """Return whether requests can be served."""
        return stored.trouble is None and stored.step == NEWEST_STEP

    def feed_age(self, stored: Stored) -> float | None:
        """Seconds since the end of the newest slot that has a count."""
        if stored.newest_end is None:
            return None
        return max(0.0, (self._resources.clock.now() - stored.newest_end).total_seconds())

    def _look(self) -> Stored:
        try:
            step = schema_step(self._resources.engine)
            if step != NEWEST_STEP:
                return Stored(None, step)
            with reading(self._resources.engine) as session:
                if not takes_writes(session):
                    session.invalidate()  # only a new connection can find that it does again
                    return Stored("it takes no writes", step)
                return Stored(None, step, *self._feed(session), self._damaged(session), registry_size(session))
        except exc.SQLAlchemyError as problem:
            log.warning("the database failed", exc_info=problem)
            return Stored(f"it failed with {type(problem).__name__}")  # the log has the rest, which may name hosts

    def _feed(self, session: Session) -> tuple[datetime | None, datetime | None, dict[int, int], int]:
        newest = newest_slots(session)
        minutes = dict(session.execute(select(Link.link_key, Link.slot_minutes)).all())
        ends = {key: slot + 60 * minutes[key] for key, slot in newest.items()}
        if not ends:
            return None, None, ends, len(minutes)
        end, start = max((ends[key], slot) for key, slot in newest.items())
        return datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC), ends, len(minutes)

    def _damaged(self, session: Session) -> tuple[tuple[str, int, str], ...]:
        damaged = self._resources.loaded_models.damaged()
        few = sorted(damaged)[:MOST_LISTED]
        question = select(Link.link_key, Link.link_id).where(Link.link_key.in_({key for key, _ in few}))
        ids = dict(session.execute(question).all())
        return tuple((ids[key], version, damaged[key, version]) for key, version in few if key in ids)
