"""The worker: a process of its own that carries out retrain runs, one after another."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.changes import watch_changes
from app.database import writing
from app.events.deliver import Deliverer
from app.registry.housekeeping import sweep_store
from app.registry.store import ModelStore
from app.retrain.beat import LOST_SECONDS, Heartbeat
from app.retrain.queries import claim_run, close_links, still_mine
from app.retrain.tables import RetrainRun
from app.retrain.triggers import make_due_runs
from app.runtime import clock_of
from app.settings import Settings

LOOK_SECONDS = 0.25
TRIGGER_SECONDS = 10.0
SWEEP_SECONDS = 3600.0
NICENESS = 19  # forecasts come first

log = logging.getLogger("flowcast.worker")


class Worker:
    """Claims runs and carries them out until it is told to stop."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self.name = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stop = threading.Event()
        self._changes = watch_changes(engine)
        self._clock = clock_of(engine, self._changes, settings)
        self._triggers_at = self._sweep_at = 0.0

    def stop(self) -> None:
        """End after what is under way is put down; another worker will take it up."""
        self._stop.set()

    def work(self) -> None:
        """Carry out runs as they come."""
        os.nice(NICENESS)
        log.info("worker ready", extra={"worker": self.name})
        delivery = threading.Thread(target=self._deliver, name="deliver", daemon=True)
        delivery.start()
        seen = object()
        try:
            while not self._stop.is_set():
                try:
                    self._make_due_runs()
                    stamp = self._changes.any_stamp()
                    # A lost run is found by time alone, so look now and then although nothing was written.
                    if stamp != seen or time.monotonic() % 5.0 < LOOK_SECONDS:
                        seen = stamp
                        while not self._stop.is_set() and self.work_once():
                            pass
                except SQLAlchemyError as problem:
                    log.warning("the database is away", extra={"reason": type(problem).__name__})
                self._stop.wait(LOOK_SECONDS)
        finally:
            self._stop.set()
            delivery.join(timeout=10.0)
            self._changes.close()

    def work_once(self) -> bool:
        """Claim a run and carry it out; False when there is none."""
        with writing(self._engine) as session:
            run = claim_run(session, self.name, datetime.now(UTC), timedelta(seconds=LOST_SECONDS))
        if run is None:
            return False
        # Loaded with the first run: what training needs takes a second and much memory, and most hours bring no run.
        from app.retrain.carry_out import RunLost, carry_out
        from app.retrain.work import Work

        log.info("run begins", extra={"run": run.id, "algorithm": run.algorithm})
        work = Work(self._engine, self._settings, run, self.name)
        with Heartbeat(self._engine, run.id, self.name, self._stop) as heartbeat:
            try:
                state = carry_out(work, heartbeat)
                log.info("run ended", extra={"run": run.id, "state": state})
            except RunLost:
                log.warning("run lost to another worker", extra={"run": run.id})
            except SQLAlchemyError:
                raise  # the run is found by its silent heartbeat when the database is back
            except Exception as problem:
                log.exception("run failed", extra={"run": run.id})
                self._fail(run.id, f"{type(problem).__name__}: {problem}")
        return True

    def _fail(self, run_id: int, reason: str) -> None:
        now = datetime.now(UTC)
        with writing(self._engine) as session:
            if still_mine(session, run_id, self.name, now):
                run = session.get_one(RetrainRun, run_id)
                run.state, run.detail, run.finished_at = "failed", reason, now
                close_links(session, run_id, "failed", reason, now)

    def _make_due_runs(self) -> None:
        if time.monotonic() < self._triggers_at:
            return
        self._triggers_at = time.monotonic() + TRIGGER_SECONDS
        for run_id in make_due_runs(self._engine, self._settings, self._clock):
            log.info("run queued by itself", extra={"run": run_id})
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + SWEEP_SECONDS
            sweep_store(self._engine, ModelStore(self._settings.model_store))

    def _deliver(self) -> None:
        deliverer = Deliverer(self._engine, self._settings)
        while not self._stop.wait(1.0):
            deliverer.step(datetime.now(UTC))
        deliverer.close()
