"""Periodic work: runs that are due, maintenance of the database, the sweep of the model store.

Of all workers, one does it at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.clock import Clock
from app.core.database import CONNECTING, is_sqlite
from app.maintenance.scheduled import Maintenance
from app.registry.cleanup import LEFT_AFTER_SECONDS, sweep_store
from app.registry.open_store import open_store
from app.registry.training_folder import sweep_training
from app.settings import Settings
from app.worker.triggers import make_due_runs

LOOK_SECONDS = 10.0
SWEEP_SECONDS = 3600.0
SCHEDULER_LOCK = 7_240_602  # a number of our own among PostgreSQL's advisory locks
# A host that vanished closes no connection; the server must notice by itself, or nobody else gets the turn.
SERVER_KEEP_ALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"

log = logging.getLogger("flowcast.scheduler")


class Turn:
    """The right to do periodic work: a lock in PostgreSQL, which ends with its connection, and so with its holder.

    On SQLite every worker has it. A run is queued once even so, by a constraint of its table, and to prune or to
    sweep twice does no harm.
    """

    def __init__(self, engine: Engine, worker: str) -> None:
        self._address = None
        if not is_sqlite(engine):
            self._address = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._worker = worker
        self._connection: Any = None

    def held(self) -> bool:
        """Return whether it is this worker's turn; nobody's is taken."""
        if self._address is None:
            return True
        import psycopg  # here, because a worker on SQLite does not need it

        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._address,
                    autocommit=True,
                    application_name=f"flowcast scheduler {self._worker}"[:63],
                    options=SERVER_KEEP_ALIVE,
                    **CONNECTING,
                )
                if self._connection.execute(f"SELECT pg_try_advisory_lock({SCHEDULER_LOCK})").fetchone() != (True,):
                    self.end()
                    return False
                log.info("scheduler ready", extra={"worker": self._worker})
            self._connection.execute("SELECT 1")  # is it still there?
        except (psycopg.Error, OSError) as problem:
            log.warning("no turn to schedule", extra={"reason": type(problem).__name__})
            self.end()
        return self._connection is not None

    def end(self) -> None:
        """Leave it to another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Scheduler:
    """Does periodic work in a thread of its own, so that it goes on while a long run is carried out."""

    def __init__(self, engine: Engine, settings: Settings, clock: Clock, worker: str, stop: threading.Event) -> None:
        self._engine, self._settings, self._clock, self._stop = engine, settings, clock, stop
        self._turn = Turn(engine, worker)
        self._maintenance = Maintenance(engine, settings, worker, stop)
        self._sweep_at = 0.0

    def work(self) -> None:
        """Look every few seconds what is due, until stopped."""
        while not self._stop.is_set():
            mine = self._turn.held()
            tasks = [self._queue_due_runs, self._maintenance.step, self._sweep] if mine else [self._sweep_own]
            for task in tasks:
                try:
                    task()
                except SQLAlchemyError as problem:
                    log.warning("the database is unreachable", extra={"reason": type(problem).__name__})
                except Exception:  # the thread must go on
                    log.exception("periodic work failed")
            self._stop.wait(LOOK_SECONDS)
        self._turn.end()

    def _queue_due_runs(self) -> None:
        for run_id in make_due_runs(self._engine, self._settings, self._clock):
            log.info("run queued by itself", extra={"run": run_id})

    def _sweep(self) -> None:
        if self._is_sweep_due():
            sweep_store(self._engine, open_store(self._settings))

    def _sweep_own(self) -> None:
        """Sweep this machine's training folders, which no other worker sees."""
        if self._is_sweep_due():
            sweep_training(open_store(self._settings), LEFT_AFTER_SECONDS)

    def _is_sweep_due(self) -> bool:
        if time.monotonic() < self._sweep_at:
            return False
        self._sweep_at = time.monotonic() + SWEEP_SECONDS
        return True
