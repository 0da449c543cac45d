"""Periodic work: the runs that are due, and the sweep of the model store; of all workers, one sees to it at a time."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.clock import Clock
from app.core.database import CONNECTING, is_sqlite
from app.registry.cleanup import LEFT_AFTER_SECONDS, sweep_store
from app.registry.open_store import open_store
from app.registry.training_folder import sweep_training
from app.settings import Settings
from app.worker.triggers import make_due_runs

LOOK_SECONDS = 10.0
SWEEP_SECONDS = 3600.0
SCHEDULER_LOCK = 7_240_602  # a number of our own among PostgreSQL's advisory locks
# Of a host that vanished the server hears nothing; it must notice by itself, or nobody else gets the turn.
SERVER_KEEP_ALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"

log = logging.getLogger("flowcast.scheduler")


class Turn:
    """The right to do periodic work: a lock in PostgreSQL, which ends with its connection, and so with its holder.

    In SQLite every worker has it. Its workers share a machine, and what must be done once is done once by
    constraints of the tables, here as there.
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
        import psycopg  # here, for a worker on SQLite needs none of it

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

    def __init__(self, engine: Engine, settings: Settings, clock: Clock, worker: str) -> None:
        self._engine, self._settings, self._clock = engine, settings, clock
        self._turn = Turn(engine, worker)
        self._sweep_at = 0.0

    def work(self, stop: threading.Event) -> None:
        """Look every few seconds what is due, until told to stop."""
        while not stop.is_set():
            try:
                self.step()
            except SQLAlchemyError as problem:
                log.warning("the database is away", extra={"reason": type(problem).__name__})
            except Exception:  # the thread must live on
                log.exception("periodic work failed")
            stop.wait(LOOK_SECONDS)
        self._turn.end()

    def step(self) -> None:
        """Queue what is due, and sweep once an hour, if it is this worker's turn."""
        mine = self._turn.held()
        if mine:
            for run_id in make_due_runs(self._engine, self._settings, self._clock):
                log.info("run queued by itself", extra={"run": run_id})
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_SECONDS
        store = open_store(self._settings)
        if mine:
            sweep_store(self._engine, store)
        else:  # nobody else sees this machine's
            sweep_training(store, LEFT_AFTER_SECONDS)
