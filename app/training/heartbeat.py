"""The heartbeat of a run under way: it shows that its worker is alive, and reads whether to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.database import database_now, writing
from app.training.queries import cancel_wanted, renew_lease, set_stage

BEAT_SECONDS = 1.0
LOST_SECONDS = 10.0  # of silence, after which another worker may take a run up

Share = Callable[[], float]

log = logging.getLogger("flowcast.retrain")


class Heartbeat:
    """Beats in a thread of its own for as long as it is entered."""

    def __init__(self, engine: Engine, run_id: int, worker: str, stop: threading.Event) -> None:
        self._engine, self._run_id, self._worker, self._stop = engine, run_id, worker, stop
        self.lost = self.cancelled = False
        self._stage: tuple[str, Share | None] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    @property
    def over(self) -> bool:
        """Return whether the run should go on no further."""
        return self.lost or self.cancelled or self._stop.is_set()

    def enter_stage(self, name: str, share: Share | None = None) -> None:
        """Take note of what the run does from now on; each beat stores it, with the share of it that is done."""
        self._stage = name, share

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                with writing(self._engine, derived=True, served=False) as session:
                    self.lost = not renew_lease(session, self._run_id, self._worker, database_now(session))
                    self.cancelled = cancel_wanted(session, self._run_id)
                    if self._stage is not None and not self.lost:
                        name, share = self._stage
                        set_stage(session, self._run_id, name, share and share())
            except SQLAlchemyError as problem:  # the database may be back before anybody misses us
                log.warning("no heartbeat", extra={"run": self._run_id, "reason": type(problem).__name__})


class Silence:
    """Finds runs whose heartbeat stands still, by this process's own count of seconds.

    A clock that was set back puts the last heartbeat of a dead worker into the future, where it would not
    grow old for as long as the clock was set back.
    """

    def __init__(self) -> None:
        self._heard: dict[int, tuple[object, float]] = {}  # a run's last heartbeat, and when it was first seen

    def silent(self, beats: Mapping[int, object], now: float) -> list[int]:
        """Return the runs whose heartbeat is too old, of those that run."""
        before = self._heard
        self._heard = {
            run: before[run] if before.get(run, (None,))[0] == beat else (beat, now) for run, beat in beats.items()
        }
        return [run for run, (_, first) in self._heard.items() if now > first + LOST_SECONDS]
