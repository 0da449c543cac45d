"""Load shedding: refuse requests at once that could only be answered much too late.

Few sessions are open, and few batches of counts are processed, at a time; other requests wait. Once too many wait,
more are refused with 503 and ``Retry-After``: reads at half the bound, so that counts can still be stored. Streams
of events and imports last long: each kind has a number of places, and those of them that wait for a thread are not
counted as waiting. A forecast in memory needs no thread and is refused only when the process itself cannot keep up.
Probes and metrics are never refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from time import monotonic
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from app.core.errors import ProblemType, Unavailable
from app.core.metrics import SHED_REQUESTS
from app.settings import Settings

# Sessions at a time. More would only share one interpreter, and those that hold a lock need a thread for each step up
# to their commit: there are six times as many threads, so that a holder finds one while others wait for the lock.
TURNS = {"read": 4, "write": 2}
# Threads for work that must not wait for others, or that others must not wait for. Of two batches at once each takes as
# long as both in turn, and the event loop waits for two.
LANES = {"ingest": 1, "forecasts": 1, "look_up": 2, "links": 1, "import": 2, "events": 1}
MOST_IMPORTS = 8  # being received, waiting or under way; each has a file on disk
LOOK_SECONDS = 0.5
MOST_LAG = 1.0  # seconds that the event loop may be late
LATE_LOOKS = 4  # in a row, before everything is refused: one may be due to a busy machine
WAITS = (1, 2, 3)  # seconds after which to try again, in turn, so that not all come back at once
GUARDED = "/v1/"
READS = ("GET", "HEAD")
FROM_MEMORY = (b"", *(f"horizon={n}".encode() for n in range(1, 5)))  # queries of forecasts that need no thread

Answer = TypeVar("Answer")


class Overloaded(Unavailable):
    """More requests than can be answered in time."""

    problem_type = ProblemType.OVERLOADED
    title = "Too many requests at once"


class Shedding:
    """Counts the requests that wait, and refuses more."""

    def __init__(self, settings: Settings) -> None:
        self._most = {True: max(1, settings.max_waiting // 2), False: settings.max_waiting}  # of reads, of all others
        # One body of the largest size must fit.
        self._most_body_bytes = max(settings.max_bodies_megabytes, settings.max_body_megabytes) << 20
        self._body_bytes = 0
        self._places = {"events": settings.max_streams, "import": MOST_IMPORTS}
        self._taken = dict.fromkeys(self._places, 0)
        self._late = 0
        self._retry_seconds = cycle(WAITS)
        self._pausing = 0
        self._lanes = {lane: CapacityLimiter(threads) for lane, threads in LANES.items()}
        self.turns = {kind: CapacityLimiter(most) for kind, most in TURNS.items()}

    def check(self, method: str, path: str, query: bytes) -> None:
        """Raise ``Overloaded`` if a request may not pass."""
        if not path.startswith(GUARDED):
            return
        read = method in READS
        if self._late < LATE_LOOKS:
            if read and path.endswith("/forecast") and query in FROM_MEMORY:
                return
            if self._waiting() < self._most[read]:
                return
        raise self._refusal(read)

    def _waiting(self) -> int:
        lanes = [lane for name, lane in self._lanes.items() if name not in self._places]
        return sum(lane.statistics().tasks_waiting for lane in (*self.turns.values(), *lanes))

    async def run_in_lane(self, lane: str, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Run work in a thread of a lane; refuse where too much waits for that lane.

        Streams of events and imports have a place already and are not refused here.
        """
        limiter = self._lanes[lane]
        if lane not in self._places and limiter.statistics().tasks_waiting >= self._most[False]:
            raise self._refusal(read=lane == "look_up")
        return await run_sync(partial(work, *arguments), limiter=limiter)

    @contextmanager
    def place(self, kind: str) -> Iterator[None]:
        """Reserve a place for a stream of events or an import for a block; refuse where all are taken."""
        if self._taken[kind] >= self._places[kind]:
            raise self._refusal(read=kind == "events", why=f"all {self._places[kind]} places of this call are taken")
        self._taken[kind] += 1
        try:
            yield
        finally:
            self._taken[kind] -= 1

    def hold(self, n_bytes: int) -> None:
        """Count bytes of a body that are kept in memory; refuse them where all bodies together would hold too many."""
        if self._body_bytes + n_bytes > self._most_body_bytes:
            raise self._refusal(read=False, why="the bodies of other requests use all the memory for bodies")
        self._body_bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """Count bytes of a body as free again."""
        self._body_bytes -= n_bytes

    async def pause(self, seconds: float) -> None:
        """Wait, without a thread, before work is tried again; refuse if too many wait already."""
        if self._pausing >= self._most[False]:
            raise self._refusal(read=False)
        self._pausing += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._pausing -= 1

    async def watch(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        while True:
            due = monotonic() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self._late = self._late + 1 if monotonic() - due > MOST_LAG else 0

    def _refusal(self, read: bool, why: str = "too many requests are waiting") -> Overloaded:
        SHED_REQUESTS.labels("read" if read else "write").inc()
        seconds = next(self._retry_seconds)
        detail = f"{why}; nothing of this one was done, so send it again in {seconds} s"
        return Overloaded(detail, headers={"Retry-After": str(seconds)})
