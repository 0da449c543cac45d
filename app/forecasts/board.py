"""The latest forecast of every link, kept ready to be sent.

A link's answer is decided by its newest count and its active model. While the database says that
nothing was written, what is on the board is sent as it is; after a write the two are looked up
again, and only links for which one of them changed are read anew.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.changes import Changes
from app.clock import Clock
from app.counts.queries import Rows, newest_slots
from app.database import reading, writing
from app.forecasts.degraded import tally_reasons
from app.forecasts.issue import Issuer, Statement
from app.forecasts.queries import save_forecasts, stored_statements
from app.forecasts.windows import HORIZONS
from app.links.queries import LinkInfo, all_links, links_by_id
from app.registry.loaded import LoadedModels
from app.registry.queries import active_models
from app.settings import Settings
from app.web import metrics

log = logging.getLogger("flowcast.forecasts")


class Basis(NamedTuple):
    """What decides a link's answer."""

    link: LinkInfo
    as_of: int | None  # newest slot with a count, in Unix seconds
    active_version: int  # 0 without an active model


@dataclass
class Entry:
    """One link's answer; ``stated`` is None while the link has no count."""

    basis: Basis
    stamp: object
    stated: Rendered | None
    late: Rendered | None = None  # what is said instead once the newest count is too old

    @property
    def newest_end(self) -> int:
        """End of the newest slot with a count, in Unix seconds."""
        return (self.basis.as_of or 0) + self.basis.link.slot_seconds


class Rendered:
    """A statement as JSON, cut where the age of the data goes, which changes from second to second."""

    def __init__(self, said: Statement) -> None:
        self.said = said
        self._head = b'{"link_id":' + json.dumps(said.link.link_id).encode() + b',"forecasts":['
        self._parts = [_around_age(said, horizon) for horizon in range(1, HORIZONS + 1)]

    def forecasts(self, horizons: int, age: int) -> bytes:
        """Give the JSON of the first horizons, without the brackets."""
        middle = b"%d" % age
        return b",".join([before + middle + after for before, after in self._parts[:horizons]])

    def body(self, horizons: int, age: int) -> bytes:
        """Give the whole answer."""
        return self._head + self.forecasts(horizons, age) + b"]}"


class ForecastBoard:
    """Gives the latest forecasts from memory, and sees to it that they are the latest."""

    def __init__(
        self, engine: Engine, changes: Changes, clock: Clock, models: LoadedModels, settings: Settings
    ) -> None:
        self._engine, self._changes, self._clock = engine, changes, clock
        self._late_after = 60 * settings.stale_after_minutes
        self.issuer = Issuer(models)
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def ready(self, link_id: str) -> Entry | None:
        """Give a link's entry if it can be sent as it is; otherwise it must be looked up."""
        entry = self._entries.get(link_id)
        if entry is None:
            return None
        stamp = self._changes.stamp()
        if entry.stamp != stamp:
            basis = entry.basis
            if basis.as_of is None or not self._changes.unchanged(
                basis.link.link_key, basis.as_of, basis.active_version
            ):
                return None
            entry.stamp = stamp
        return entry if self.rendered(entry)[0] is not None or entry.basis.as_of is None else None

    def rendered(self, entry: Entry) -> tuple[Rendered | None, int]:
        """Give what an entry says now, by the age of its newest count, and that age in seconds."""
        age = max(0, int(self._clock.now().timestamp()) - entry.newest_end)
        return (entry.late if age > self._late_after else entry.stated), age

    def look_up(self, link_ids: Iterable[str] | None = None) -> dict[str, Entry]:
        """Give the entries of links, or of all; links that do not exist are left out."""
        stamp = self._changes.stamp()  # before reading: what is written meanwhile is seen next time
        with reading(self._engine) as session:
            wanted = all_links(session) if link_ids is None else links_by_id(session, list(link_ids)).values()
            bases = _bases(session, list(wanted))
            known = {basis.link.link_id: self._entries.get(basis.link.link_id) for basis in bases}
            fresh = [basis for basis in bases if not _same(known[basis.link.link_id], basis)]
            stated = self._stated(session, fresh)
        unsaid = [basis for basis in fresh if basis.as_of is not None and basis.link.link_key not in stated]
        stated |= self._issue(unsaid)
        entries = {}
        for basis in bases:
            old, said = known[basis.link.link_id], stated.get(basis.link.link_key)
            if old is not None and _same(old, basis):
                entry = Entry(basis, stamp, old.stated, old.late)
            else:
                entry = Entry(basis, stamp, Rendered(said) if said else None)
            entries[basis.link.link_id] = self._with_late(entry)
        with self._lock:
            self._entries.update(entries)
        return entries

    def issue(self, links: Sequence[LinkInfo], stored: Rows | None = None) -> int:
        """Issue forecasts of links whose newest slot moved forward, and store them; say how many links.

        ``stored`` are the counts that moved them, by link and slot, to spare reading them again.
        """
        with reading(self._engine) as session:
            newest = newest_slots(session, [link.link_key for link in links])
            statements = self.issuer.state(session, links, newest, stored)
        with writing(self._engine, derived=True) as session:
            save_forecasts(session, statements)
        _tell(statements)
        return len(statements)

    def _stated(self, session: Session, bases: Sequence[Basis]) -> dict[int, Statement]:
        """Give what was already issued on the same basis, by link key."""
        known = [basis for basis in bases if basis.as_of is not None]
        as_of = {basis.link.link_key: basis.as_of for basis in known if basis.as_of is not None}
        stored = stored_statements(session, [basis.link for basis in known], as_of)
        found = {}
        for basis in known:
            said = stored.get((basis.link.link_key, basis.active_version))
            if said is not None:
                found[basis.link.link_key] = said
        return found

    def _issue(self, bases: Sequence[Basis]) -> dict[int, Statement]:
        """Issue what nobody asked for yet, by link key; what another process issued first is kept."""
        if not bases:
            return {}
        links = [basis.link for basis in bases]
        as_of = {basis.link.link_key: basis.as_of for basis in bases if basis.as_of is not None}
        with reading(self._engine) as session:
            statements = self.issuer.state(session, links, as_of)
        with writing(self._engine, derived=True) as session:
            save_forecasts(session, statements)
            stored = stored_statements(session, links, as_of)
        _tell(statements)
        return {said.link.link_key: stored.get((said.link.link_key, said.model_version), said) for said in statements}

    def _with_late(self, entry: Entry) -> Entry:
        """Add what is to be said of a link whose counts stopped coming, when that is due."""
        if entry.stated is None or entry.late is not None or self.rendered(entry)[0] is not None:
            return entry
        try:
            with reading(self._engine) as session:
                late = self.issuer.state_late(session, entry.stated.said, self._late_after // 60)
            entry.late = Rendered(late)
            _tell_degraded([late])
        except SQLAlchemyError:
            raise
        except Exception:  # one bad link must not spoil the others' answer
            log.exception("a link's late forecast failed", extra={"link": entry.basis.link.link_id})
        return entry


def _tell(statements: Sequence[Statement]) -> None:
    for method, n in Counter(said.method for said in statements).items():
        metrics.forecasts_issued(method, n)
    _tell_degraded(statements)


def _tell_degraded(statements: Sequence[Statement]) -> None:
    for reason, n in tally_reasons(said.degraded_reason for said in statements).items():
        metrics.forecasts_degraded(reason, n)


def _same(entry: Entry | None, basis: Basis) -> bool:
    """Tell whether an entry still holds; one that failed is tried again."""
    return entry is not None and entry.basis == basis and (entry.stated is not None or basis.as_of is None)


def _bases(session: Session, links: Sequence[LinkInfo]) -> list[Basis]:
    keys = [link.link_key for link in links]
    newest, active = newest_slots(session, keys), active_models(session, keys)
    return [
        Basis(link, newest.get(link.link_key), active[link.link_key].version if link.link_key in active else 0)
        for link in links
    ]


def _around_age(said: Statement, horizon: int) -> tuple[bytes, bytes]:
    h = horizon - 1
    before = {
        "horizon": horizon,
        "slot_start": rfc3339(said.slot(horizon)),
        "expected_count": said.expected[h],
        "lower": said.lower[h],
        "upper": said.upper[h],
        "level": said.level,
        "flow": round(said.expected[h] * 3600 / said.link.slot_seconds, 3),
        "as_of_slot": rfc3339(said.as_of),
        "issued_at": rfc3339_micros(said.issued_at),
        "method": said.method,
        "degraded_reason": said.degraded_reason,
        "filled_lags": said.filled_lags,
    }
    head = json.dumps(before, separators=(",", ":"), ensure_ascii=False)[:-1] + ',"data_age_seconds":'
    return head.encode(), b',"model_version":%s}' % (b"%d" % said.model_version if said.model_version else b"null")


def rfc3339(seconds: int) -> str:
    """Write Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micros(microseconds: int) -> str:
    """Write microseconds since 1970 as a time in UTC."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
