"""Now, from one place: the wall clock, or the feed itself for replays and tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from app.database import AWAY
from app.slots import EPOCH


class Clock(Protocol):
    """Tells now."""

    def now(self) -> datetime:
        """Now, in UTC."""

    def seen(self, end: int) -> None:
        """Take note that counts of slots ending by ``end``, in Unix seconds, have come."""

    def is_future(self, end: int) -> bool:
        """Tell whether a slot that ends at ``end``, in Unix seconds, has not happened yet."""


ALLOWED_AHEAD = 60  # seconds that a detector's clock may be ahead of ours


class WallClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def seen(self, end: int) -> None:
        """Stay as it is: counts do not move the wall clock."""

    def is_future(self, end: int) -> bool:
        """Tell whether a slot ends more than 60 s from now."""
        return end > self.now().timestamp() + ALLOWED_AHEAD


class FeedClock:
    """Now is the end of the newest slot that any process took in; before the first count, the start of 1970."""

    def __init__(self, newest_end: Callable[[], int | None], stamp: Callable[[], object]) -> None:
        self._read, self._stamp = newest_end, stamp
        self._newest_end, self._known_at = 0, object()
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Give the end of the newest slot; it is looked up again after something was written, if that can be."""
        stamp = self._stamp()
        if stamp != self._known_at:
            with suppress(*AWAY):
                self.seen(self._read() or 0)
                self._known_at = stamp
        return datetime.fromtimestamp(self._newest_end, UTC) if self._newest_end else EPOCH

    def seen(self, end: int) -> None:
        """Move forward, never back."""
        with self._lock:
            self._newest_end = max(self._newest_end, end)

    def is_future(self, end: int) -> bool:
        """Say no: the feed makes its own time."""
        return False
