"""How fresh the counts of links are."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from app.core.times import instant_of
from app.health.schemas import State
from app.links.queries import LinkInfo


class Now(NamedTuple):
    """The present moment, and the age past which a feed is stale, in seconds."""

    second: int
    stale_after: int

    @classmethod
    def at(cls, now: datetime, stale_after_minutes: int) -> Now:
        """Take the time from the clock."""
        return cls(int(now.timestamp()), 60 * stale_after_minutes)

    def age(self, link: LinkInfo, newest: int) -> int:
        """Return how long the newest slot of a link has been over, in seconds."""
        return max(0, self.second - newest - link.slot_seconds)

    def state(self, link: LinkInfo, newest: int | None, in_doubt: bool = False) -> State:
        """Return the state of a link's feed."""
        if newest is None:
            return State.SILENT
        if self.age(link, newest) > self.stale_after:
            return State.STALE
        return State.SUSPECT if in_doubt else State.OK

    def feed(self, link: LinkInfo, newest: int | None, in_doubt: bool) -> dict[str, Any]:
        """Return the fields that every answer on a link's feed has."""
        return {
            "link_id": link.link_id,
            "state": self.state(link, newest, in_doubt),
            "newest_slot": None if newest is None else instant_of(newest),
            "data_age_seconds": None if newest is None else self.age(link, newest),
        }
