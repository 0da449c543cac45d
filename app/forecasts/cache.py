"""A cache of the latest forecast of every link.

A link's newest count and its active models determine its forecast; together they are its `ForecastKey`. While the
change feed shows no write, an entry is returned as it is. After a write the keys are read again, and only forecasts
whose key changed are read or computed. The process that stores counts issues the forecasts and replaces its entries.
On PostgreSQL other processes notify which links they wrote, which evicts those links here; on SQLite every write
evicts all. An evicted entry stays in memory, and is returned as stale while the database is unreachable.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Annotated, NamedTuple

from fastapi import Depends
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.core import metrics
from app.core.change_feed import ChangeFeed, Notice
from app.core.clock import Clock
from app.core.database import UNREACHABLE, Change, reading, record_change, writing
from app.core.errors import Conflict, Problem, ProblemType, Unavailable
from app.counts.queries import newest_slots
from app.forecasts.compute import Forecaster
from app.forecasts.issued_forecast import Degradation, Document, IssuedForecast, link_document
from app.forecasts.profile_fallback import LateFallback
from app.forecasts.queries import (
    issued_with,
    lock_ensembles,
    save_forecasts,
    save_states,
    stored_ensembles,
    stored_forecasts,
)
from app.http.dependencies import from_state
from app.links.queries import LinkInfo, all_links, links_by_id
from app.registry.loaded_models import LoadedModels
from app.registry.queries import ActiveModels, active_models
from app.settings import Settings

log = logging.getLogger("flowcast.forecasts")

READ_AT_ONCE = 50  # links that a refresh reads in one transaction
GRACE_SECONDS = 2.0  # in which the process that stored counts is expected to issue their forecasts
EVICTED = object()  # a version that the change feed never has
STALE_HEADER = {"X-Flowcast-Stale": "true"}

for _kind in Degradation:  # created at the start, as in app.core.metrics
    metrics.FORECASTS_DEGRADED.labels(_kind)


class ForecastKey(NamedTuple):
    """The link, newest count and active models that determine a forecast."""

    link: LinkInfo
    as_of: int | None  # newest slot with a count, in Unix seconds
    active: ActiveModels

    @property
    def version(self) -> int:
        """Return the version of the forecast of a link without an ensemble; 0 without an active model."""
        return self.active[-1].version if self.active else 0


@dataclass
class CacheEntry:
    """The forecast of a link; ``issued`` is None while the link has no count, or where computing it failed."""

    key: ForecastKey
    version: object  # of the change feed, when the entry was last found to be current
    issued: IssuedForecast | None
    fallback: LateFallback | None = None  # what replaces the forecast once the newest count is too old
    late: IssuedForecast | None = None  # the fallback's forecast for the slot that contained now at the last read

    def missing(self, *, stale: bool = False) -> Problem:
        """Return why the link has no forecast."""
        link_id = self.key.link.link_id
        if self.key.as_of is None:
            return Conflict(ProblemType.NO_COUNTS, f"link {link_id!r} has no counts yet; post some to /v1/counts")
        if stale and self.issued is not None:
            missing = "the database is unreachable and its profile is not in memory"
            return Unavailable(f"there is no forecast of link {link_id!r} from now on: {missing}")
        return Unavailable(
            f"the forecast of link {link_id!r} failed; the service's log has the reason",
            problem_type=ProblemType.FORECAST_FAILED,
        )

    def holds(self, key: ForecastKey) -> bool:
        """Return whether it is still the entry for a key; a forecast that failed is tried again."""
        return self.key == key and (self.issued is not None or key.as_of is None)


class _Noticed(NamedTuple):
    """The time of the last notice of a write to a link, and the time from which its entry must be looked up."""

    at: float
    due: float


class ForecastCache:
    """Returns the latest forecasts from memory, and keeps them current."""

    def __init__(
        self, engine: Engine, changes: ChangeFeed, clock: Clock, models: LoadedModels, settings: Settings
    ) -> None:
        self.engine, self._changes, self._clock = engine, changes, clock
        self._late_after = 60 * settings.stale_after_minutes
        self.forecaster = Forecaster(models, settings.holidays)
        self._entries: dict[str, CacheEntry] = {}
        self._noticed: dict[int, _Noticed] = {}  # by link key
        self._complete: object = None  # the version at which all links were looked up
        self._refreshed: object = None  # the version of the last refresh
        self._links: frozenset[str] = frozenset()  # that existed then
        self._lock = threading.Lock()
        self.revision = 0  # rises whenever a link gets another forecast
        changes.subscribe(self._on_notice)

    def now(self) -> int:
        """Return now, in Unix seconds."""
        return int(self._clock.now().timestamp())

    def get(self, link_id: str, now: int | None = None) -> CacheEntry | None:
        """Return a link's entry if it is current; otherwise it must be looked up."""
        entry, now = self._entries.get(link_id), self.now() if now is None else now
        return entry if entry is not None and self._is_current(entry, self._changes.version(), now) else None

    def current(self, entry: CacheEntry, now: int | None = None) -> tuple[IssuedForecast | None, int]:
        """Return an entry's forecast by the age of its newest count, and that age in seconds."""
        link, now = entry.key.link, self.now() if now is None else now
        age = max(0, now - (entry.key.as_of or 0) - link.slot_seconds)
        if age <= self._late_after or entry.issued is None:
            return entry.issued, age
        if entry.fallback is None:
            return None, age
        if entry.late is None or entry.late.first_slot != now - now % link.slot_seconds:
            entry.late = entry.fallback.forecast(entry.issued, now, self._late_after // 60)
            _count_degraded([entry.late])
        return entry.late, age

    def document(self, link_id: str, horizons: int) -> Document | None:
        """Return the document of a link's forecast if that is current; otherwise it must be looked up."""
        now = self.now()
        if (entry := self.get(link_id, now)) is None:
            return None
        forecast, age = self.current(entry, now)
        if forecast is None:
            raise entry.missing()
        return link_document(forecast, horizons, age)

    def look_up(self, link_ids: Collection[str] | None = None) -> dict[str, CacheEntry]:
        """Return the entries of links, or of all; links that do not exist are left out."""
        version, began = self._changes.version(), monotonic()  # before reading, so that later writes are seen next time
        if link_ids is None and self._complete == version:
            with self._lock:
                entries = dict(self._entries)
            now = self.now()
            if all(self._is_current(entry, version, now) for entry in entries.values()):
                return entries
        with reading(self.engine) as session:
            links = all_links(session) if link_ids is None else list(links_by_id(session, link_ids).values())
            entries = self._read(session, links, version, issue=True)
            for entry in entries.values():
                self._add_fallback(session, entry)
        self._put(entries, began)
        if link_ids is None:
            self._drop_all_but(entries)
            self._complete = version
        return entries

    def latest(self, link_ids: Collection[str] | None = None) -> tuple[dict[str, CacheEntry], bool]:
        """Return the entries of links, or of all, and whether they are stale because the database is unreachable."""
        try:
            return self.look_up(link_ids), False
        except UNREACHABLE:
            if (known := self.known(link_ids)) is None:
                raise
            return {link_id: self._with_fallback_in_memory(entry) for link_id, entry in known.items()}, True

    def known(self, link_ids: Collection[str] | None = None) -> dict[str, CacheEntry] | None:
        """Return the entries in memory, current or not; None where a link may exist that is not among them."""
        with self._lock:
            known = dict(self._entries)
        if link_ids is None:
            return None if self._refreshed is None else known
        absent = set(link_ids) - known.keys()
        if absent and (self._refreshed is None or absent & self._links):
            return None
        return {link_id: known[link_id] for link_id in set(link_ids) - absent}

    def refresh(self) -> None:
        """Read the stored forecasts of links that are not current, in case the database becomes unreachable.

        Nothing is computed here: the next request for such a link does that.
        """
        served, version = self._changes.served_version(), self._changes.version()
        if served == self._refreshed:
            return
        with reading(self.engine) as session:
            links = all_links(session)
        missing = [link for link in links if self.get(link.link_id) is None]
        for begin in range(0, len(missing), READ_AT_ONCE):
            began = monotonic()
            with reading(self.engine) as session:
                entries = self._read(session, missing[begin : begin + READ_AT_ONCE], version, issue=False)
            self._put({name: one for name, one in entries.items() if one.issued or one.key.as_of is None}, began)
        self._links = frozenset(link.link_id for link in links)
        self._drop_all_but(self._links)
        self._refreshed = served

    def issue(self, links: Sequence[LinkInfo]) -> int:
        """Compute and store forecasts of links whose newest slot moved forward; return of how many links."""
        version, began = self._changes.version(), monotonic()
        try:
            with reading(self.engine) as session:
                link_keys = [link.link_key for link in links]
                newest, active = newest_slots(session, link_keys), active_models(session, link_keys)
                forecasts = self.forecaster.compute(session, links, newest, active)
            forecasts = self._store(forecasts)
        except BaseException:
            self._evict({link.link_id for link in links})
            raise
        entries = {
            one.link.link_id: CacheEntry(
                ForecastKey(one.link, one.as_of, active.get(one.link.link_key, ())), version, one
            )
            for one in forecasts
        }
        self._evict({link.link_id for link in links} - entries.keys())
        self._put(entries, began)
        return len(forecasts)

    def _is_current(self, entry: CacheEntry, version: object, now: int) -> bool:
        noticed = self._noticed.get(entry.key.link.link_key) if self._noticed else None
        return (
            entry.version == version
            and (noticed is None or monotonic() < noticed.due)
            and (entry.key.as_of is None or self.current(entry, now)[0] is not None)
        )

    def _read(
        self, session: Session, links: Sequence[LinkInfo], version: object, *, issue: bool
    ) -> dict[str, CacheEntry]:
        """Read the entries of links; with ``issue``, compute and store the forecasts that are missing."""
        link_keys = [link.link_key for link in links]
        newest, active = newest_slots(session, link_keys), active_models(session, link_keys)
        entries = {}
        for link in links:
            key = ForecastKey(link, newest.get(link.link_key), active.get(link.link_key, ()))
            old = self._entries.get(link.link_id)
            if old is not None and old.holds(key):
                entries[link.link_id] = replace(old, version=version)
            else:
                entries[link.link_id] = CacheEntry(key, version, None)
        changed = [entry for entry in entries.values() if entry.issued is None and entry.key.as_of is not None]
        stored = stored_forecasts(session, [entry.key.link for entry in changed], newest)
        ensembles = stored_ensembles(session, [e.key.link.link_key for e in changed if e.key.link.has_ensemble])
        for entry in changed:
            link = entry.key.link
            if not link.has_ensemble:
                issued = stored.get((link.link_key, entry.key.version))
                entry.issued = None if issued is None or issued.experts else issued  # not of experts that it had before
            else:
                entry.issued = issued_with(ensembles.get(link.link_key), link.link_key, entry.key.as_of, stored)
        missing = [entry.key.link for entry in changed if entry.issued is None]
        if issue and missing:
            # With the session that read the keys, which still sees a link that was deleted since.
            for forecast in self._store(self.forecaster.compute(session, missing, newest, active)):
                entries[forecast.link.link_id].issued = forecast
        return entries

    def _store(self, forecasts: list[IssuedForecast]) -> list[IssuedForecast]:
        """Store forecasts and return them as they are stored: one that another process issued first stays."""
        updates = {one.link.link_key: (one.update, one.model_version) for one in forecasts if one.update is not None}
        forecasts = [one._replace(update=None) for one in forecasts]
        with writing(self.engine, derived=True) as session:
            record_change(session, Change.FORECASTS, [one.link.link_key for one in forecasts])
            revisions = lock_ensembles(session, list(updates))
            # Those whose state went on meanwhile, in another process or by an activation, are not stored.
            late = {key for key, (update, _) in updates.items() if update.revision != revisions.get(key, 0)}
            whole = save_forecasts(session, [one for one in forecasts if one.link.link_key not in late])
            save_states(session, {key: one for key, one in updates.items() if key not in late})
            if late or not whole:
                as_of = {one.link.link_key: one.as_of for one in forecasts}
                stored = stored_forecasts(session, [one.link for one in forecasts], as_of)
                states, own = stored_ensembles(session, list(late)), updates.keys() - late
                forecasts = [
                    one
                    if one.link.link_key in own
                    else issued_with(states.get(one.link.link_key), one.link.link_key, one.as_of, stored)
                    or stored.get((one.link.link_key, one.model_version), one)
                    for one in forecasts
                ]
        for method, n in Counter(one.method for one in forecasts).items():
            metrics.FORECASTS_ISSUED.labels(method).inc(n)
        _count_degraded(forecasts)
        return forecasts

    def _add_fallback(self, session: Session, entry: CacheEntry) -> None:
        """Add what replaces the forecast of a link whose counts stopped coming, once that is due."""
        if entry.issued is None or entry.fallback is not None or self.current(entry)[0] is not None:
            return
        try:
            entry.fallback = self.forecaster.late_fallback(session, entry.issued)
        except SQLAlchemyError:
            raise
        except Exception:  # one bad link must not spoil the response for the others
            log.exception("computing a link's forecast on a read failed", extra={"link": entry.key.link.link_id})

    def _with_fallback_in_memory(self, entry: CacheEntry) -> CacheEntry:
        if entry.issued is None or self.current(entry)[0] is not None:
            return entry
        # A copy: a profile from memory may lack its interval, which the database provides when it is back.
        return replace(entry, fallback=self.forecaster.late_fallback_in_memory(entry.issued))

    def _put(self, entries: Mapping[str, CacheEntry], began: float) -> None:
        """Store entries that were read from ``began`` on, unless a newer one is in the cache."""
        with self._lock:
            for link_id, entry in entries.items():
                old, link_key = self._entries.get(link_id), entry.key.link.link_key
                if old is None or old.version != entry.version or (old.key.as_of or 0) <= (entry.key.as_of or 0):
                    self.revision += old is None or old.issued != entry.issued
                    self._entries[link_id] = entry
                if link_key in self._noticed and self._noticed[link_key].at < began:
                    del self._noticed[link_key]

    def _evict(self, link_ids: Iterable[str]) -> None:
        with self._lock:
            for entry in [self._entries[link_id] for link_id in link_ids if link_id in self._entries]:
                entry.version = EVICTED

    def _drop_all_but(self, link_ids: Collection[str]) -> None:
        """Drop links that were deleted."""
        with self._lock:
            for link_id in self._entries.keys() - set(link_ids):
                del self._entries[link_id]

    def _on_notice(self, notice: Notice) -> None:
        """Evict links that another process wrote: at once, or if only counts were stored, after ``GRACE_SECONDS``."""
        now = monotonic()
        due = now if notice.change is Change.FORECASTS else now + GRACE_SECONDS
        with self._lock:
            for key in notice.link_keys:
                earlier = self._noticed.get(key)
                self._noticed[key] = _Noticed(now, due if earlier is None else min(due, earlier.due))


def _count_degraded(forecasts: Sequence[IssuedForecast]) -> None:
    for kind, n in Counter(one.degradation for one in forecasts if one.degradation is not None).items():
        metrics.FORECASTS_DEGRADED.labels(kind).inc(n)


ForecastCacheDep = Annotated[ForecastCache, Depends(from_state("forecast_cache"))]
