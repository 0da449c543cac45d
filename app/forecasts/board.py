"""The latest forecast of every link, kept ready to be sent.

A link's answer is decided by its newest count and its active model. While the database says that
nothing was written, what is on the board is sent as it is; after a write the two are looked up
again, and only links for which one of them changed are read anew. Who stores counts issues the forecasts
and puts them on the board; while that is under way, what was said before is said still.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.core.change_feed import Changes
from app.core.clock import Clock
from app.core.database import reading, writing
from app.counts.queries import Rows, newest_slots
from app.forecasts.bases import Basis, basis_of, read_bases
from app.forecasts.entry import Entry, Rendered
from app.forecasts.following import Following
from app.forecasts.in_place import brought_up_to_date
from app.forecasts.issue import WITHOUT_MODEL, Issuer, Statement
from app.forecasts.issued_elsewhere import IssuedElsewhere
from app.forecasts.queries import save_forecasts, stored_statements
from app.forecasts.silent_feed import read_fallback
from app.forecasts.telling import count_degraded, count_issued, tell_processes
from app.links.queries import LinkInfo, all_links, links_by_id
from app.registry.loaded import LoadedModels
from app.settings import Settings

log = logging.getLogger("flowcast.forecasts")

AT_ONCE, PAUSE_SECONDS = 50, 0.02  # links that are taken note of in one go, and the pause in which requests come in


class ForecastBoard:
    """Gives the latest forecasts from memory, and sees to it that they are the latest."""

    def __init__(
        self, engine: Engine, changes: Changes, clock: Clock, models: LoadedModels, settings: Settings
    ) -> None:
        self._engine, self._changes, self._clock = engine, changes, clock
        self._late_after = 60 * settings.stale_after_minutes
        self.issuer = Issuer(models)
        self._entries: dict[str, Entry] = {}
        self._ids: dict[int, str] = {}  # of the links on the board, by key
        self._whole: object = None  # the stamp at which every link was on the board
        self._put_aside: dict[str, Entry] = {}  # what was said last of links that must be looked up
        self._noted: object = None  # the stamp at which all links were last taken note of
        self._links: frozenset[str] = frozenset()  # as they were then
        self.revision = 0  # rises whenever an entry is put on the board, also one of another process
        self._lock = threading.Lock()
        self._elsewhere = IssuedElsewhere(engine)
        self._following = Following(self._follow)
        changes.tell(self._following.hear)

    @property
    def late_minutes(self) -> int:
        """Age of a link's newest count, in minutes, past which its profile answers."""
        return self._late_after // 60

    def close(self) -> None:
        """Stop following other processes."""
        self._following.close()
        self._elsewhere.close()

    def ready(self, link_id: str) -> Entry | None:
        """Give a link's entry if it can be sent as it is; otherwise it must be looked up."""
        entry = self._entries.get(link_id)
        if entry is None:
            return None
        stamp = self._changes.stamp()
        if entry.stamp != stamp:
            found = brought_up_to_date(self._changes, entry, stamp)
            if found is None:
                return None
            if found is not entry:
                self._keep({link_id: found})
            entry = found
        if self._following.is_behind(entry.basis.link.link_key):
            return None
        return entry if self.rendered(entry)[0] is not None or entry.basis.as_of is None else None

    def now(self) -> int:
        """Give now, in Unix seconds."""
        return int(self._clock.now().timestamp())

    def rendered(self, entry: Entry, now: int | None = None) -> tuple[Rendered | None, int]:
        """Give what an entry says now, by the age of its newest count, and that age in seconds."""
        age = max(0, (self.now() if now is None else now) - entry.newest_end)
        return (self._late(entry, age) if age > self._late_after else entry.stated), age

    def _late(self, entry: Entry, age: int) -> Rendered | None:
        """Return the answer for the slots from now on; None where the profile must be looked up first."""
        if entry.fallback is None or entry.stated is None:
            return None
        late, now = entry.late, entry.newest_end + age
        if late is None or not late.said.slot(1) <= now < late.said.slot(2):
            late = entry.late = Rendered(entry.fallback.statement(entry.stated.said, now, self.late_minutes))
            count_degraded([late.said])
        return late

    def look_up(self, link_ids: Iterable[str] | None = None) -> dict[str, Entry]:
        """Give the entries of links, or of all; links that do not exist are left out."""
        stamp, began = self._changes.stamp(), monotonic()  # before reading: what is written meanwhile is seen next time
        if link_ids is None and (ready := self._all_ready(stamp)) is not None:
            return ready
        with reading(self._engine) as session:
            wanted = all_links(session) if link_ids is None else links_by_id(session, list(link_ids)).values()
            bases = read_bases(session, list(wanted))
            known = {basis.link.link_id: self._entries.get(basis.link.link_id) for basis in bases}
            fresh = [basis for basis in bases if not _same(known[basis.link.link_id], basis)]
            stated = self._stated(session, fresh)
            unsaid = [basis for basis in fresh if basis.as_of is not None and basis.link.link_key not in stated]
            stated |= self._issue(session, unsaid)
            entries = {}
            for basis in bases:
                old, said = known[basis.link.link_id], stated.get(basis.link.link_key)
                if old is not None and _same(old, basis):
                    entry = Entry(basis, stamp, old.stated, old.fallback, old.late)
                else:
                    entry = Entry(basis, stamp, Rendered(said) if said else None)
                entries[basis.link.link_id] = self._with_fallback(session, entry)
        self._keep(entries)
        self._following.caught_up([basis.link.link_key for basis in bases], began)
        if link_ids is None:
            self._drop_all_but(entries)
            self._whole = stamp
        return entries

    def remembered(self, link_ids: Iterable[str] | None = None) -> dict[str, Entry] | None:
        """Give the entries of links, or of all, as they were last; None where one may exist that is not known here."""
        with self._lock:
            known = self._put_aside | self._entries
        if link_ids is None:
            return None if self._noted is None else known
        wanted = set(link_ids)
        absent = wanted - known.keys()
        if absent and (self._noted is None or absent & self._links):
            return None
        return {link_id: known[link_id] for link_id in wanted - absent}

    def take_note(self) -> None:
        """Read what was issued of links that are not up to date, to be in memory should the database go away.

        Nothing is issued here: that is for those who ask.
        """
        noted, stamp = self._changes.served_stamp(), self._changes.stamp()
        if noted == self._noted:
            return
        with reading(self._engine) as session:
            links = all_links(session)
        missed = [link for link in links if self.ready(link.link_id) is None]
        for begin in range(0, len(missed), AT_ONCE):
            began = monotonic()
            with reading(self._engine) as session:
                bases = read_bases(session, missed[begin : begin + AT_ONCE])
                fresh = [basis for basis in bases if not _same(self._entries.get(basis.link.link_id), basis)]
                stated = self._stated(session, fresh)
            said = {basis.link.link_id: stated.get(basis.link.link_key) for basis in fresh}
            entries = {
                basis.link.link_id: Entry(basis, stamp, Rendered(it) if (it := said[basis.link.link_id]) else None)
                for basis in fresh
                if basis.as_of is None or said[basis.link.link_id]
            }
            self._keep(entries)
            self._following.caught_up([entry.basis.link.link_key for entry in entries.values()], began)
            time.sleep(PAUSE_SECONDS)
        self._links = frozenset(link.link_id for link in links)
        self._drop_all_but(self._links)
        self._noted = noted

    def _all_ready(self, stamp: object) -> dict[str, Entry] | None:
        """Give all entries if each can be sent as it is."""
        if self._whole != stamp:
            return None
        with self._lock:
            entries = dict(self._entries)
        behind, now = self._following.is_behind, self.now()
        good = all(
            entry.stamp == stamp
            and not behind(entry.basis.link.link_key)
            and (entry.basis.as_of is None or self.rendered(entry, now)[0] is not None)
            for entry in entries.values()
        )
        return entries if good else None

    def _keep(self, entries: dict[str, Entry]) -> None:
        """Put entries on the board, but for those that somebody was quicker with."""
        with self._lock:
            for link_id, entry in entries.items():
                old, link_key = self._entries.get(link_id), entry.basis.link.link_key
                if old is None or old.stamp != entry.stamp or (old.basis.as_of or 0) <= (entry.basis.as_of or 0):
                    self.revision += 1
                    self._entries[link_id] = entry
                    self._ids[link_key] = link_id
                    self._put_aside.pop(link_id, None)

    def _follow(self, issued: Mapping[int, int]) -> None:
        """Read the forecasts of links that another process issued, as far as they are on the board and up to date."""
        stamp, began = self._changes.stamp(), monotonic()
        with self._lock:
            known = {key: self._entries[self._ids[key]] for key in issued if key in self._ids}
        behind = [key for key, old in known.items() if old.stamp == stamp and (old.basis.as_of or 0) < issued[key]]
        stored = self._elsewhere.read([known[key].basis.link for key in behind], dict(issued))
        found = {key: stored.get((key, known[key].basis.active_version)) for key in behind}
        said = [one for one in found.values() if one is not None]
        self._keep({one.link.link_id: Entry(basis_of(one), stamp, Rendered(one)) for one in said})
        self._following.caught_up(list(known), began)  # others may be being looked up at this moment
        # Where another than the active model spoke, the link is looked up as a whole.
        if unsaid := [known[key].basis.link.link_id for key, one in found.items() if one is None]:
            self.look_up(unsaid)

    def issue(self, links: Sequence[LinkInfo], stored: Rows | None = None) -> int:
        """Issue forecasts of links whose newest slot moved forward, and store them; say how many links.

        ``stored`` are the counts that moved them, by link and slot, to spare reading them again.
        """
        stamp = self._changes.stamp()
        try:
            with reading(self._engine) as session:
                newest = newest_slots(session, [link.link_key for link in links])
                statements = self.issuer.state(session, links, newest, stored)
            statements = self._store(statements)
        except BaseException:
            self._forget(link.link_id for link in links)
            raise
        # A statement that says why it is not the active model's does not say which that is.
        plain = [said for said in statements if said.degraded_reason in WITHOUT_MODEL]
        entries = {said.link.link_id: Entry(basis_of(said), stamp, Rendered(said)) for said in plain}
        self._forget(link.link_id for link in links if link.link_id not in entries)
        self._keep(entries)
        count_issued(statements)
        return len(statements)

    def _forget(self, link_ids: Iterable[str]) -> None:
        """Let links be looked up when they are next asked for."""
        with self._lock:
            for link_id in link_ids:
                self._whole = None
                if (entry := self._entries.pop(link_id, None)) is not None:
                    self._ids.pop(entry.basis.link.link_key, None)
                    self._put_aside[link_id] = entry

    def _drop_all_but(self, link_ids: Collection[str]) -> None:
        """Forget links that were deleted, for good."""
        with self._lock:
            for link_id in (self._entries.keys() | self._put_aside.keys()) - set(link_ids):
                self._put_aside.pop(link_id, None)
                if (entry := self._entries.pop(link_id, None)) is not None:
                    self._ids.pop(entry.basis.link.link_key, None)

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

    def _issue(self, session: Session, bases: Sequence[Basis]) -> dict[int, Statement]:
        """Issue what nobody asked for yet, by link key; what another process issued first is kept.

        The session is the one that the bases were read with: it still sees a link that was deleted since.
        """
        if not bases:
            return {}
        links = [basis.link for basis in bases]
        as_of = {basis.link.link_key: basis.as_of for basis in bases if basis.as_of is not None}
        statements = self._store(self.issuer.state(session, links, as_of))
        count_issued(statements)
        return {said.link.link_key: said for said in statements}

    def _store(self, statements: list[Statement]) -> list[Statement]:
        """Store forecasts and give them as they are stored: what another process issued first stays."""
        with writing(self._engine, derived=True) as session:
            tell_processes(session, statements)
            if save_forecasts(session, statements):
                return statements
            as_of = {said.link.link_key: said.as_of for said in statements}
            stored = stored_statements(session, [said.link for said in statements], as_of)
        return [stored.get((said.link.link_key, said.model_version), said) for said in statements]

    def _with_fallback(self, session: Session, entry: Entry) -> Entry:
        """Add what answers for a link whose counts stopped coming, when that is due."""
        if entry.stated is None or entry.fallback is not None or self.rendered(entry)[0] is not None:
            return entry
        try:
            entry.fallback = read_fallback(session, self.issuer, entry.stated.said)
        except SQLAlchemyError:
            raise
        except Exception:  # one bad link must not spoil the others' answer
            log.exception("a link's late forecast failed", extra={"link": entry.basis.link.link_id})
        return entry


def _same(entry: Entry | None, basis: Basis) -> bool:
    """Tell whether an entry still holds; one that failed is tried again."""
    return entry is not None and entry.basis == basis and (entry.stated is not None or basis.as_of is None)
