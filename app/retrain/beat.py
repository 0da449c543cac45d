"""The heartbeat of a run under way: it says that its worker is alive, and hears whether to stop."""

from __future__ import annotations

import logging
import threading

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.database import database_now, writing
from app.retrain.queries import cancel_wanted, still_mine

BEAT_SECONDS = 1.0
LOST_SECONDS = 10.0  # of silence, after which another worker may take a run up

log = logging.getLogger("flowcast.retrain")


class Heartbeat:
    """Beats in a thread of its own for as long as it is entered."""

    def __init__(self, engine: Engine, run_id: int, worker: str, stop: threading.Event) -> None:
        self._engine, self._run_id, self._worker, self._stop = engine, run_id, worker, stop
        self.lost = self.cancelled = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    @property
    def over(self) -> bool:
        """Tell whether the run should go on no further."""
        return self.lost or self.cancelled or self._stop.is_set()

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
                    self.lost = not still_mine(session, self._run_id, self._worker, database_now(session))
                    self.cancelled = cancel_wanted(session, self._run_id)
            except SQLAlchemyError as problem:  # the database may be back before anybody misses us
                log.warning("no heartbeat", extra={"run": self._run_id, "reason": type(problem).__name__})
