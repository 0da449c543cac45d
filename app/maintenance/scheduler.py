"""What a worker sees to beside its runs: months made ahead, and old rows removed by schedule."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from app.core.database import is_sqlite, reading, writing
from app.core.partitions import MONTHLY, ensure_months, month_begin, month_of
from app.maintenance.needed_days import Need, needed_counts, needed_records
from app.maintenance.prune import old_before, prune, service_now
from app.maintenance.tables import Upkeep
from app.settings import Settings

LOST = timedelta(minutes=5)  # of silence, after which another worker may take over


def is_due(session: Session, kind: str, moment: datetime, since: datetime) -> bool:
    """Return whether a moment is still to be seen to; a schedule that is new is not behind with what came before it."""
    last = session.get(Upkeep, kind)
    if last is None:
        return moment > since
    return last.moment < moment or (last.moment == moment and last.finished_at is None)


def claim(session: Session, kind: str, moment: datetime, worker: str, now: datetime) -> bool:
    """Take a moment, unless it was seen to, or somebody is at it or at the one before.

    Two that claim the very first moment at once: one gets an ``IntegrityError``.
    """
    last = session.get(Upkeep, kind, with_for_update=True, populate_existing=True)
    values = {"moment": moment, "worker": worker, "started_at": now, "heartbeat_at": now}
    if last is None:
        session.add(Upkeep(kind=kind, **values))
        return True
    under_way = last.finished_at is None and last.heartbeat_at > now - LOST
    done = last.moment > moment or (last.moment == moment and last.finished_at is not None)
    if under_way or done:
        return False
    session.execute(
        update(Upkeep).where(Upkeep.kind == kind).values(**values, finished_at=None, figures=None, detail=None)
    )
    return True


def beat(session: Session, kind: str, worker: str, now: datetime) -> bool:
    """Renew this worker's lease; return False when another worker has taken over."""
    mine = update(Upkeep).where(Upkeep.kind == kind, Upkeep.worker == worker, Upkeep.finished_at.is_(None))
    return bool(session.execute(mine.values(heartbeat_at=now)).rowcount)  # type: ignore[attr-defined]


def finish(
    session: Session, kind: str, worker: str, now: datetime, figures: dict[str, int], detail: str | None
) -> None:
    """Note that it is over, and what came of it."""
    mine = update(Upkeep).where(Upkeep.kind == kind, Upkeep.worker == worker, Upkeep.finished_at.is_(None))
    session.execute(mine.values(finished_at=now, heartbeat_at=now, figures=figures, detail=detail))


PRUNE = "prune"
LOOK_SECONDS = 10.0
MONTHS_SECONDS = 3600.0
MONTHS_AHEAD = 2
BEAT_SECONDS = 10.0

log = logging.getLogger("flowcast.upkeep")


class _PutDown(Exception):
    """Ends a removal before its end; what is left will be taken up by whoever comes next."""


class MaintenanceScheduler:
    """Looks now and then whether something is due; of several workers one does it."""

    def __init__(self, engine: Engine, settings: Settings, worker: str) -> None:
        self._engine, self._settings, self._worker = engine, settings, worker
        self._stop = threading.Event()
        self._months_at = self._beat_at = 0.0
        self._since: datetime | None = None

    @contextmanager
    def beside(self) -> Iterator[None]:
        """See to it in a thread of its own while something else goes on."""
        thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(timeout=10.0)

    def step(self) -> None:
        """Do what is due."""
        if time.monotonic() >= self._months_at:
            self._months_at = time.monotonic() + MONTHS_SECONDS
            self._make_months()
        if self._settings.prune_schedule:
            self._prune()

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except SQLAlchemyError as problem:
                log.warning("the database is away", extra={"reason": type(problem).__name__})
            except Exception:
                log.exception("upkeep failed")
            if self._stop.wait(LOOK_SECONDS):
                return

    def _make_months(self) -> None:
        """Make this month and the next ones, so that nobody has to wait for that at their beginning."""
        if is_sqlite(self._engine):
            return
        with Session(self._engine) as session, session.begin():
            now = month_of(int(service_now(session, self._settings).timestamp()))
            begins = [month_begin(month) for month in range(now, now + MONTHS_AHEAD + 1)]
        for table in MONTHLY:
            with Session(self._engine) as session, session.begin():
                ensure_months(session, table, begins)

    def _prune(self) -> None:
        from app.core.cron import last_moment

        with reading(self._engine) as session:
            now = service_now(session, self._settings)
            self._since = self._since or now
            moment = last_moment(self._settings.prune_schedule, now)
            if not is_due(session, PRUNE, moment, self._since):
                return
        try:
            with writing(self._engine, served=False) as session:
                if not claim(session, PRUNE, moment, self._worker, datetime.now(UTC)):
                    return
        except IntegrityError:  # another worker was faster
            return
        gone: Counter[str] = Counter()
        try:
            refusal = self._remove(gone)
        except _PutDown:
            log.info("pruning put down", extra={"moment": f"{moment:%Y-%m-%dT%H:%M:%SZ}", **gone})
            return
        with writing(self._engine, served=False) as session:
            finish(session, PRUNE, self._worker, datetime.now(UTC), dict(gone), refusal)
        if refusal is not None:
            log.warning("nothing was pruned", extra={"reason": refusal})
        else:
            log.info("pruned", extra={"moment": f"{moment:%Y-%m-%dT%H:%M:%SZ}", **gone})

    def _remove(self, gone: Counter[str]) -> str | None:
        """Remove what is old, unless something needs it; say what."""
        days, record_days = self._settings.prune_days or None, self._settings.prune_record_days or None
        with reading(self._engine) as session:
            refusal = _too_few("FLOWCAST_PRUNE_DAYS", days, needed_counts(session, self._settings))
            refusal = refusal or _too_few("FLOWCAST_PRUNE_RECORD_DAYS", record_days, needed_records(self._settings))
            if refusal is not None:
                return refusal
            old = old_before(session, self._settings, days, record_days)

        def removed(table: str, n: int) -> None:
            gone[f"{table}_removed"] += n
            if self._stop.is_set() or not self._still_mine():
                raise _PutDown

        prune(self._engine, old, removed)
        return None

    def _still_mine(self) -> bool:
        if time.monotonic() < self._beat_at:
            return True
        self._beat_at = time.monotonic() + BEAT_SECONDS
        with writing(self._engine, derived=True, served=False) as session:
            return beat(session, PRUNE, self._worker, datetime.now(UTC))


def _too_few(setting: str, days: int | None, need: Need) -> str | None:
    if days is None or days >= need.days:
        return None
    return f"{setting}={days} is refused; it must be at least {need.days} ({need.by})"
