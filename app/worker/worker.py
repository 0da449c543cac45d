"""The worker: a process of its own that executes retrain runs, one after another."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.change_feed import watch_changes
from app.core.database import Change, database_now, reading, record_change, writing
from app.counts.feed_clock import open_clock
from app.events.deliver import Deliverer
from app.registry.store import StoreUnreachable
from app.settings import Settings
from app.training.cluster import Cluster
from app.training.queries import LOST_SECONDS, claim_run, read_heartbeats
from app.training.run_context import RunContext, RunLost
from app.worker.scheduler import Scheduler

LOOK_SECONDS = 0.25
NICENESS = 19  # forecasts come first

log = logging.getLogger("flowcast.worker")


class Worker:
    """Claims runs and executes them until it is stopped."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self.name = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stop = threading.Event()
        self._changes = watch_changes(engine)
        clock = open_clock(engine, self._changes, settings)
        self._scheduler = Scheduler(engine, settings, clock, self.name, self._stop)
        self._cluster = Cluster(settings.dask_scheduler) if settings.dask_scheduler else None
        self._silent_runs = SilentRuns()

    def stop(self) -> None:
        """Stop after the run under way is released; another worker will claim it."""
        self._stop.set()

    def close(self) -> None:
        """Release the connection that watches for changes."""
        self._changes.close()

    def work(self) -> None:
        """Execute runs as they are queued."""
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
                    version = self._changes.any_version()
                    # A lost run is found by time alone, so look now and then although nothing was written.
                    if version != seen or time.monotonic() % 5.0 < LOOK_SECONDS:
                        seen = version
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
        """Claim a run and execute it; return False when there is none."""
        with writing(self._engine, served=False) as session:
            silent = self._silent_runs.find(read_heartbeats(session), time.monotonic())
            run = claim_run(session, self.name, database_now(session), silent)
            if run is None:  # a notification would make this very worker look again, without end
                record_change(session, Change.NOTHING)
        if run is None:
            return False
        log.info("run begins", extra={"run": run.id, "algorithm": run.algorithm})
        with RunContext(self._engine, self._settings, run, self.name, self._stop, self._cluster) as context:
            # Loaded with the first run: training needs libraries that take a second and much memory, and most hours
            # bring no run.
            from app.training.execute_run import execute_run, fail_run

            try:
                state = execute_run(context)
                log.info("run ended", extra={"run": run.id, "state": state})
            except RunLost:
                log.warning("run lost to another worker", extra={"run": run.id})
            except StoreUnreachable as problem:
                log.warning("run failed", extra={"run": run.id, "reason": str(problem)})
                fail_run(context, str(problem))
            except SQLAlchemyError:
                raise  # the run is claimed again when the database is reachable
            except Exception as problem:
                log.exception("run failed", extra={"run": run.id})
                fail_run(context, f"{type(problem).__name__}: {problem}")
        return True

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


class SilentRuns:
    """Finds runs whose heartbeat does not change, by this process's own count of seconds.

    A clock that was set back puts the last heartbeat of a dead worker into the future, where it would not
    grow old for as long as the clock was set back.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, float]] = {}  # a run's last heartbeat, and when it was first seen

    def find(self, heartbeats: Mapping[int, object], now: float) -> list[int]:
        """Return those of the running runs whose heartbeat is too old."""
        before = self._seen
        self._seen = {
            run: before[run] if before.get(run, (None,))[0] == heartbeat else (heartbeat, now)
            for run, heartbeat in heartbeats.items()
        }
        return [run for run, (_, first) in self._seen.items() if now > first + LOST_SECONDS]
