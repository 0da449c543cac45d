"""The clock of the service: the machine's, or for replays and tests the end of the newest slot that has a count."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from app.core.database import UNREACHABLE

ALLOWED_AHEAD = 60  # seconds that a detector's clock may be ahead of this machine's
FUTURE_RULE = "must not lie in the future"
# One count of a mistyped year would otherwise move the feed clock so far that every other link is stale.
LONGEST_JUMP = 31 * 86_400  # seconds
JUMP_RULE = (
    "must not lie more than 31 days after the newest count of any link while FLOWCAST_CLOCK is feed; "
    "POST /v1/import or flowcast import stores counts after a longer break"
)


class WallClock:
    """The machine's clock."""

    latest_rule = FUTURE_RULE  # what a posted slot that ends after ``latest_end`` breaks

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def latest_end(self) -> float:
        """Return the latest end of a slot, in Unix seconds, that ``POST /v1/counts`` accepts: 60 s from now."""
        return self.now().timestamp() + ALLOWED_AHEAD

    def is_future(self, end: int) -> bool:
        """Return whether a slot that ends at ``end``, in Unix seconds, has not happened yet."""
        return end > self.latest_end()


class FeedClock:
    """Now is the end of the newest slot that has a count; before the first count, the start of 1970."""

    latest_rule = JUMP_RULE

    def __init__(self, read_newest_end: Callable[[], int | None], version: Callable[[], object]) -> None:
        self._read_newest_end, self._version = read_newest_end, version
        self._known: tuple[object, int] = (object(), 0)  # the version at which it was read, and the newest end

    def now(self) -> datetime:
        """Return the end of the newest slot, read again after any process wrote; deleted counts move it back."""
        return datetime.fromtimestamp(self._newest_end(), UTC)

    def latest_end(self) -> float:
        """Return the time 31 days after the newest count; the first count of all may lie anywhere."""
        newest = self._newest_end()
        return newest + LONGEST_JUMP if newest else math.inf

    def is_future(self, end: int) -> bool:
        """Return False: now follows from the counts."""
        return False

    def _newest_end(self) -> int:
        version = self._version()  # before reading: what is written meanwhile is seen next time
        known_at, newest = self._known
        if version != known_at:
            with suppress(*UNREACHABLE):
                newest = self._read_newest_end() or 0
                self._known = version, newest
        return newest


Clock = WallClock | FeedClock
