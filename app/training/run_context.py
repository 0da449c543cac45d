"""The context of a run that a worker executes: its lease, which heartbeats renew, and whether it should go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.core.database import database_now, writing
from app.registry.queries import ArtifactRef
from app.registry.store import open_store
from app.settings import Settings
from app.training.cluster import Cluster
from app.training.queries import is_cancelled, renew_lease, set_detail, set_stage
from app.training.request import DEFAULT_DAYS, REFRESH
from app.training.tables import RetrainRun
from model.artifacts.artifact import DamagedArtifact

BEAT_SECONDS = 1.0

log = logging.getLogger("flowcast.retrain")


class RunLost(Exception):
    """Another worker has claimed the run, because this one sent no heartbeat."""


class RunContext:
    """A run and the resources to execute it; while entered, a thread renews the lease and stores the progress.

    Attributes
    ----------
    cluster : Cluster or None
        Where links are trained; None for local processes.
    store : ModelStore
    days : int
        How many last days of counts to learn from.
    refreshes : bool
        Whether counts join the memories of network models, and nothing is learnt anew.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        run: RetrainRun,
        worker: str,
        stop: threading.Event,
        cluster: Cluster | None = None,
    ) -> None:
        self.engine, self.settings, self.run, self.cluster = engine, settings, run, cluster
        self.store = open_store(settings)
        self.days = int(run.parameters.get("days", DEFAULT_DAYS))
        self.refreshes = bool(run.parameters.get(REFRESH))
        self._worker, self._stop = worker, stop
        self._lost = self._cancelled = False
        self._stage: tuple[str, Callable[[], float] | None] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True)

    @property
    def over(self) -> bool:
        """Return whether the run should stop."""
        return self._lost or self._cancelled or self._stop.is_set()

    @contextmanager
    def lease(self, *, derived: bool = False, served: bool = True) -> Iterator[tuple[Session, datetime]]:
        """Open a transaction that renews this worker's lease on the run; raise `RunLost` if another has taken it."""
        with writing(self.engine, derived=derived, served=served) as session:
            now = database_now(session)
            if not renew_lease(session, self.run.id, self._worker, now):
                raise RunLost
            yield session, now

    def set_detail(self, detail: str | None) -> None:
        """Store a note with the run if it is not trained as set; None removes it."""
        with self.lease(derived=True, served=False) as (session, _):
            set_detail(session, self.run.id, detail)

    def artifact(self, reference: ArtifactRef) -> Path:
        """Return the folder of an artifact on this machine; damage is found when the artifact is read."""
        try:
            return self.store.fetch(reference.folder, reference.fingerprint)
        except DamagedArtifact:
            return self.store.path(reference.folder)

    def enter_stage(self, name: str, share: Callable[[], float] | None = None) -> None:
        """Set what each heartbeat stores from now on: the stage, and the share of it that is done."""
        self._stage = name, share

    def __enter__(self) -> RunContext:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._send_heartbeat()
            except RunLost:
                self._lost = True
            except SQLAlchemyError as problem:  # the database may be reachable again before the lease ends
                log.warning(
                    "the heartbeat was not stored", extra={"run": self.run.id, "reason": type(problem).__name__}
                )

    def _send_heartbeat(self) -> None:
        with self.lease(derived=True, served=False) as (session, _):
            self._cancelled = is_cancelled(session, self.run.id)
            if self._stage is not None:
                name, share = self._stage
                set_stage(session, self.run.id, name, share and share())
