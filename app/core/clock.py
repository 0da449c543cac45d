"""Now, from one place: the wall clock, or the feed itself for replays and tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from app.core.database import AWAY

ALLOWED_AHEAD = 60  # seconds that a detector's clock may be ahead of ours
FUTURE_RULE = "must not lie in the future"
# One count of a mistyped year would otherwise move the feed clock so far that every other link is stale.
LONGEST_JUMP = 31 * 86_400  # seconds
JUMP_RULE = (
    "must not lie more than 31 days after the newest count of any link while FLOWCAST_CLOCK is feed; "
    "POST /v1/import or flowcast import stores counts after a longer break"
)


class Clock(Protocol):
    """Tells now."""

    latest_rule: str  # what a posted slot that ends after ``latest_end`` breaks

    def now(self) -> datetime:
        """Now, in UTC."""

    def is_future(self, end: int) -> bool:
        """Return whether a slot that ends at ``end``, in Unix seconds, has not happened yet."""

    def latest_end(self) -> float:
        """Return the latest end of a slot, in Unix seconds, that ``POST /v1/counts`` takes."""


class WallClock:
    """The machine's clock."""

    latest_rule = FUTURE_RULE

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def is_future(self, end: int) -> bool:
        """Return whether a slot ends more than 60 s from now."""
        return end > self.latest_end()

    def latest_end(self) -> float:
        """Return the time 60 s from now."""
        return self.now().timestamp() + ALLOWED_AHEAD


class FeedClock:
    """Now is the end of the newest slot that has a count; before the first count, the start of 1970."""

    latest_rule = JUMP_RULE

    def __init__(self, newest_end: Callable[[], int | None], stamp: Callable[[], object]) -> None:
        self._read, self._stamp = newest_end, stamp
        self._known: tuple[object, int] = (object(), 0)  # the stamp at which it was read, and the newest end

    def now(self) -> datetime:
        """Return the end of the newest slot, read again after any process wrote; deleted counts move it back."""
        return datetime.fromtimestamp(self._newest_end(), UTC)

    def is_future(self, end: int) -> bool:
        """Return False: the feed makes its own time."""
        return False

    def latest_end(self) -> float:
        """Return the time 31 days after the newest count; the first count of all may lie anywhere."""
        newest = self._newest_end()
        return newest + LONGEST_JUMP if newest else math.inf

    def _newest_end(self) -> int:
        stamp = self._stamp()  # before reading: what is written meanwhile is seen next time
        known_at, newest = self._known
        if stamp != known_at:
            with suppress(*AWAY):
                newest = self._read() or 0
                self._known = stamp, newest
        return newest
