"""Scheduled maintenance of the database: make months ahead, remove old rows."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import is_sqlite, reading, writing
from app.core.partitions import MONTHLY, ensure_months, month_begin, month_of
from app.core.times import last_cron_time
from app.maintenance.prune import NeededDays, needed_counts, needed_records, old_before, prune, service_now
from app.maintenance.tables import Upkeep
from app.settings import Settings

PRUNE = "prune"
MONTHS_SECONDS = 3600.0
MONTHS_AHEAD = 2

log = logging.getLogger("flowcast.upkeep")


class _Stopped(Exception):
    """Raised to interrupt a removal; what is left is removed later, by the worker that does periodic work then."""


class Maintenance:
    """Does what is due, called every few seconds by the one worker that does periodic work."""

    def __init__(self, engine: Engine, settings: Settings, worker: str, stop: threading.Event) -> None:
        self._engine, self._settings, self._worker, self._stop = engine, settings, worker, stop
        self._months_at = 0.0
        self._since: datetime | None = None  # a schedule that is new does not make up for what came before it

    def step(self) -> None:
        """Do what is due."""
        if time.monotonic() >= self._months_at:
            self._months_at = time.monotonic() + MONTHS_SECONDS
            self._make_months()
        if self._settings.prune_schedule:
            self._prune()

    def _make_months(self) -> None:
        """Make this month and the next ones, so that no transaction has to wait for that at their beginning."""
        if is_sqlite(self._engine):
            return
        with Session(self._engine) as session, session.begin():
            now = month_of(int(service_now(session, self._settings).timestamp()))
            begins = [month_begin(month) for month in range(now, now + MONTHS_AHEAD + 1)]
        for table in MONTHLY:
            with Session(self._engine) as session, session.begin():
                ensure_months(session, table, begins)

    def _prune(self) -> None:
        """Remove old rows if a moment of the schedule has passed since that was last finished."""
        with reading(self._engine) as session:
            now = service_now(session, self._settings)
            self._since = self._since or now
            moment = last_cron_time(self._settings.prune_schedule, now)
            last = session.get(Upkeep, PRUNE)
        done = moment <= self._since if last is None else last.moment >= moment and last.finished_at is not None
        if done:
            return
        started_at = datetime.now(UTC)
        self._record(moment, started_at)
        gone: Counter[str] = Counter()
        try:
            refusal = self._remove(gone)
        except _Stopped:
            log.info("pruning was interrupted", extra={"moment": f"{moment:%Y-%m-%dT%H:%M:%SZ}", **gone})
            return
        self._record(moment, started_at, finished_at=datetime.now(UTC), figures=dict(gone), detail=refusal)
        if refusal is not None:
            log.warning("nothing was pruned", extra={"reason": refusal})
        else:
            log.info("pruned", extra={"moment": f"{moment:%Y-%m-%dT%H:%M:%SZ}", **gone})

    def _record(self, moment: datetime, started_at: datetime, **result: Any) -> None:
        """Store the pruning that is under way, or its result."""
        row = {"kind": PRUNE, "moment": moment, "worker": self._worker, "started_at": started_at}
        result = {"finished_at": None, "figures": None, "detail": None} | result
        with writing(self._engine, served=False) as session:
            session.merge(Upkeep(heartbeat_at=datetime.now(UTC), **row, **result))

    def _remove(self, gone: Counter[str]) -> str | None:
        """Remove what is old and count it; if something needs it, remove nothing and return the reason."""
        days, record_days = self._settings.prune_days or None, self._settings.prune_record_days or None
        with reading(self._engine) as session:
            refusal = _too_few("FLOWCAST_PRUNE_DAYS", days, needed_counts(session, self._settings))
            refusal = refusal or _too_few("FLOWCAST_PRUNE_RECORD_DAYS", record_days, needed_records(self._settings))
            if refusal is not None:
                return refusal
            old = old_before(session, self._settings, days, record_days)

        def removed(table: str, n: int) -> None:
            gone[f"{table}_removed"] += n
            if self._stop.is_set():
                raise _Stopped

        prune(self._engine, old, removed)
        return None


def _too_few(setting: str, days: int | None, need: NeededDays) -> str | None:
    if days is None or days >= need.days:
        return None
    return f"{setting}={days} is refused; it must be at least {need.days} ({need.by})"
