"""Periodic work: runs that are due, maintenance of the database, the sweep of the model store.

Of all workers, one does it at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.clock import Clock
from app.core.database import CONNECTING, is_sqlite
from app.maintenance.scheduled import Maintenance
from app.registry.cleanup import sweep_store, sweep_training
from app.registry.store import open_store
from app.settings import Settings
from app.worker.triggers import Triggers

LOOK_SECONDS = 10.0
SWEEP_SECONDS = 3600.0
SCHEDULER_LOCK = 7_240_602  # a number of our own among PostgreSQL's advisory locks
# A host that failed closes no connection; the server must detect that by itself, or no other worker gets the lock.
SERVER_KEEP_ALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"

log = logging.getLogger("flowcast.scheduler")


class SchedulerLock:
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

    def acquire(self) -> bool:
        """Return whether this worker holds the lock, after trying to get it if no other worker holds it."""
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
                    self.release()
                    return False
                log.info("scheduler ready", extra={"worker": self._worker})
            self._connection.execute("SELECT 1")  # raises an exception if the connection was lost
        except (psycopg.Error, OSError) as problem:
            log.warning("no scheduler lock", extra={"reason": type(problem).__name__})
            self.release()
        return self._connection is not None

    def release(self) -> None:
        """Release the lock by closing its connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Scheduler:
    """Does periodic work in a thread of its own, so that it goes on while a long run is executed."""

    def __init__(self, engine: Engine, settings: Settings, clock: Clock, worker: str, stop: threading.Event) -> None:
        self._engine, self._settings, self._stop = engine, settings, stop
        self._lock = SchedulerLock(engine, worker)
        self._triggers = Triggers(engine, settings, clock)
        self._maintenance = Maintenance(engine, settings, worker, stop)
        self._sweep_at = 0.0

    def work(self) -> None:
        """Do what is due every few seconds, until stopped."""
        while not self._stop.is_set():
            tasks: list[Callable[[], object]] = [partial(self._sweep, whole_store=False)]
            if self._lock.acquire():
                tasks = [
                    self._triggers.queue_due_runs,
                    self._maintenance.step,
                    partial(self._sweep, whole_store=True),
                ]
            for task in tasks:
                try:
                    task()
                except SQLAlchemyError as problem:
                    log.warning("the database is unreachable", extra={"reason": type(problem).__name__})
                except Exception:  # the thread must go on
                    log.exception("periodic work failed")
            self._stop.wait(LOOK_SECONDS)
        self._lock.release()

    def _sweep(self, *, whole_store: bool) -> None:
        """Sweep the store once an hour, or only the training folders of this machine, which no other worker sees."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_SECONDS
        store = open_store(self._settings)
        if whole_store:
            sweep_store(self._engine, store)
        else:
            sweep_training(store)
