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

from app.core.change_feed import watch_changes
from app.core.database import Change, database_now, reading, record_change, writing
from app.counts.feed_clock import open_clock
from app.events.deliver import Deliverer
from app.registry.store import StoreAway
from app.settings import Settings
from app.training.cluster import Cluster
from app.training.heartbeat import LOST_SECONDS, Heartbeat, Silence
from app.training.queries import beats, claim_run, close_links, renew_lease
from app.training.tables import RetrainRun
from app.worker.scheduler import Scheduler

LOOK_SECONDS = 0.25
NICENESS = 19  # forecasts come first

log = logging.getLogger("flowcast.worker")


class Worker:
    """Claims runs and carries them out until it is stopped."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self.name = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stop = threading.Event()
        self._changes = watch_changes(engine)
        self._clock = open_clock(engine, self._changes, settings)
        self._scheduler = Scheduler(engine, settings, self._clock, self.name, self._stop)
        self._cluster = Cluster(settings.dask_scheduler) if settings.dask_scheduler else None
        self._silence = Silence()

    def stop(self) -> None:
        """End after what is under way is put down; another worker will take it up."""
        self._stop.set()

    def close(self) -> None:
        """Release the connection that watches for changes."""
        self._changes.close()

    def work(self) -> None:
        """Carry out runs as they come."""
        os.nice(NICENESS)
        log.info("worker ready", extra={"worker": self.name})
        if self._cluster is not None:
            self._cluster.log_address()
        delivery = threading.Thread(target=self._deliver, name="deliver", daemon=True)
        schedule = threading.Thread(target=self._scheduler.work, name="schedule", daemon=True)
        delivery.start()
        schedule.start()
        seen = object()
        try:
            while not self._stop.is_set():
                try:
                    stamp = self._changes.any_version()
                    # A lost run is found by time alone, so look now and then although nothing was written.
                    if stamp != seen or time.monotonic() % 5.0 < LOOK_SECONDS:
                        seen = stamp
                        while not self._stop.is_set() and self.work_once():
                            pass
                except SQLAlchemyError as problem:
                    log.warning("the database is unreachable", extra={"reason": type(problem).__name__})
                self._stop.wait(LOOK_SECONDS)
        finally:
            self._stop.set()
            delivery.join(timeout=10.0)
            schedule.join(timeout=10.0)
            self.close()

    def work_once(self) -> bool:
        """Claim a run and carry it out; False when there is none."""
        with writing(self._engine, served=False) as session:
            silent = self._silence.silent(beats(session), time.monotonic())
            run = claim_run(session, self.name, database_now(session), timedelta(seconds=LOST_SECONDS), silent)
            if run is None:  # to say so would wake this very worker, again and again
                record_change(session, Change.NOTHING)
        if run is None:
            return False
        # Loaded with the first run: what training needs takes a second and much memory, and most hours bring no run.
        from app.training.execute_run import RunLost, execute_run
        from app.training.work import Work

        log.info("run begins", extra={"run": run.id, "algorithm": run.algorithm})
        work = Work(self._engine, self._settings, run, self.name, self._cluster)
        with Heartbeat(self._engine, run.id, self.name, self._stop) as heartbeat:
            try:
                state = execute_run(work, heartbeat)
                log.info("run ended", extra={"run": run.id, "state": state})
            except RunLost:
                log.warning("run lost to another worker", extra={"run": run.id})
            except StoreAway as away:
                log.warning("run failed", extra={"run": run.id, "reason": str(away)})
                self._fail(run.id, str(away))
            except SQLAlchemyError:
                raise  # the run is found by its silent heartbeat when the database is back
            except Exception as problem:
                log.exception("run failed", extra={"run": run.id})
                self._fail(run.id, f"{type(problem).__name__}: {problem}")
        return True

    def _fail(self, run_id: int, reason: str) -> None:
        with writing(self._engine) as session:
            now = database_now(session)
            if renew_lease(session, run_id, self.name, now):
                run = session.get_one(RetrainRun, run_id)
                run.state, run.detail, run.finished_at = "failed", reason, now
                close_links(session, run_id, "failed", reason, now)

    def _deliver(self) -> None:
        deliverer = Deliverer(self._engine, self._settings)
        while not self._stop.wait(1.0):
            try:
                with reading(self._engine) as session:
                    now = database_now(session)  # which other hosts compare their leases with
            except SQLAlchemyError:
                now = datetime.now(UTC)
            deliverer.step(now)
        deliverer.close()
