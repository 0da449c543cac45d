"""A file's counts on their way into the database: checked link by link, stored, and accounted for.

First everything is checked, which needs no lock. Only then are months created and links locked, all of them at once
and in the order of their keys, so that two imports cannot wait for each other.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.core.clock import FUTURE_RULE, Clock
from app.core.errors import Conflict, Invalid
from app.core.partitions import MONTHLY, ensure_months, month_begin, month_of, months_of
from app.core.slots import EPOCH, SlotGrid
from app.counts.import_spool import CountSource, LinkRows
from app.counts.importers import ImportedLink, Refusal
from app.counts.importers.slot_sums import Rows
from app.counts.ingest import UNKNOWN_LINK, Checked, compare_counts, store_counts
from app.counts.queries import lock_links
from app.counts.schemas import ImportedFile, RefusedEntry
from app.counts.tables import QUALITIES, Count
from app.links.queries import LinkInfo, links_by_id
from app.links.schemas import LinkIn
from app.links.store import store_links

MOST_LISTED = 100
MOST_NEW_MONTHS = 240
LONGEST_NAME = 200


@dataclass
class Intake:
    """A file on its way in: what is known of its links, and what became of its counts so far."""

    source: CountSource
    clock: Clock
    default_zone: str = ""  # of links to be created for which the file has none
    moved: list[LinkInfo] = field(default_factory=list)
    newest_end: int = 0
    seen: int = 0
    _known: dict[str, LinkInfo] = field(default_factory=dict)
    _new: list[LinkIn] = field(default_factory=list)
    _unknown: list[str] = field(default_factory=list)
    _permitted: dict[str, int] = field(default_factory=dict)  # how many counts of each link, from the first on
    _months: set[int] = field(default_factory=set)
    _stored: int = 0
    _replaced: int = 0
    _unchanged: int = 0
    _repeated: int = 0
    _slots: list[int] = field(default_factory=list)
    _qualities: np.ndarray[tuple[int], np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros(len(QUALITIES), dtype=np.int64)
    )

    def look_up(self, session: Session, link_ids: list[str], create_links: bool) -> None:
        """Look the links up, and describe those that are to be created."""
        wanted = list(self.source.links) if create_links else link_ids
        self._known = links_by_id(session, wanted)
        if create_links:
            grid, links = self.source.grid, self.source.links
            self._new = [
                as_link(links[link_id], grid, self.default_zone) for link_id in wanted if link_id not in self._known
            ]
        for i, link in enumerate(self._new):
            name = link.link_id if link.name is None else link.name
            # Stored links have keys from 1, and -1 marks the end of an array.
            info = LinkInfo(-2 - i, link.link_id, name, link.zone, link.slot_minutes, None)
            self._known[link.link_id] = info

    def slot_minutes(self) -> dict[str, int]:
        """Return the slot length of each link that exists or is to be created."""
        return {link_id: link.slot_minutes for link_id, link in self._known.items()}

    def check(self, group: list[LinkRows]) -> None:
        """Check the counts of some links, and refuse those that break a rule."""
        for link_id, rows in group:
            self._permitted[link_id] = self._check_link(link_id, rows)
            permitted = rows[: self._permitted[link_id]]
            if len(permitted):
                self._qualities += np.bincount(permitted["quality"], minlength=len(QUALITIES))
                self._months |= months_of(permitted["start"])
                slots = [*self._slots, int(permitted["start"][0]), int(permitted["start"][-1])]
                self._slots = [min(slots), max(slots)]
                self.newest_end = max(self.newest_end, slots[-1] + self._known[link_id].slot_seconds)

    def prepare(self, session: Session) -> None:
        """Create the months and the links that are missing, and lock the links that are there.

        Raises ``Conflict`` if a link was created, deleted or given another slot length since it was looked up.
        """
        if not self._months and not self._new:
            return
        ensure_months(session, Count.__tablename__, map(month_begin, self._months), most=MOST_NEW_MONTHS)
        before = {link.link_id: link for link in self._known.values() if link.link_key > 0}
        if self._new:
            # While links are written nobody can create a month, and those who post counts may need these.
            now = month_of(max(int(self.clock.now().timestamp()), self.newest_end))  # a feed may begin with this file
            for table in MONTHLY:
                ensure_months(session, table, map(month_begin, (now, now + 1)))
            if store_links(session, self._new).created != len(self._new):
                raise _changed("created")
        lock_links(session, [link.link_key for link in before.values()])
        self._known = links_by_id(session, list(self._known))
        for link_id, link in before.items():
            now_there = self._known.get(link_id)
            if now_there is None or now_there.link_key != link.link_key:
                raise _changed(f"deleted: {link_id!r}")
            if now_there.slot_minutes != link.slot_minutes:
                raise _changed(f"given another slot length: {link_id!r}")

    def take(self, session: Session, group: list[LinkRows], *, dry_run: bool) -> None:
        """Store the permitted counts of some links, or only compare them with what is stored."""
        links: list[LinkInfo] = []
        taken: list[Rows] = []
        for link_id, rows in group:
            self.seen += len(rows)
            permitted = rows[: self._permitted[link_id]]
            if len(permitted):
                latest = permitted[np.diff(permitted["start"], append=-1) != 0]  # of several for one slot the last
                self._repeated += len(permitted) - len(latest)
                links.append(self._known[link_id])
                taken.append(latest)
        if taken:
            self._store(session, links, taken, dry_run=dry_run)

    def told(self, dry_run: bool) -> ImportedFile:
        """Sum up."""
        report = self.source.report
        return ImportedFile(
            format=report.layout,
            dry_run=dry_run,
            rows=report.rows,
            values=report.values,
            stored=self._stored,
            replaced=self._replaced,
            unchanged=self._unchanged,
            repeated=self._repeated,
            gaps=report.gaps,
            refused=report.refused,
            suspect=int(self._qualities[QUALITIES.index("suspect")]),
            imputed=int(self._qualities[QUALITIES.index("imputed")]),
            links=len(self.source.links),
            links_created=len(self._new),
            unknown_links=self._unknown[:MOST_LISTED],
            first_slot=_instant(min(self._slots)) if self._slots else None,
            last_slot=_instant(max(self._slots)) if self._slots else None,
            reasons=dict(report.reasons),
            suspects=dict(report.suspects),
            notes=report.notes,
            refusals=[RefusedEntry(**one._asdict() | {"line": one.line or None}) for one in report.refusals],
        )

    def _check_link(self, link_id: str, rows: Rows) -> int:
        """Return how many counts of a link, from the first on, may be stored; refuse the others by name."""
        link = self._known.get(link_id)
        if link is None:
            self._unknown.append(link_id)
            self._refuse("link_id", link_id, UNKNOWN_LINK, len(rows))
            return 0
        seconds = link.slot_seconds
        past = bisect_left(rows["start"], True, key=lambda start: self.clock.is_future(int(start) + seconds))
        if past < len(rows):
            first = f"{_instant(int(rows['start'][past])):%Y-%m-%dT%H:%M:%SZ} of {link_id}"
            self._refuse("slot_start", first, FUTURE_RULE, len(rows) - past)
        return past

    def _refuse(self, name: str, value: str, reason: str, values: int) -> None:
        report = self.source.report
        report.counts -= values
        report.refuse(Refusal("the file", 0, name, value, reason, values))

    def _store(self, session: Session, links: list[LinkInfo], taken: list[Rows], *, dry_run: bool) -> None:
        rows = np.concatenate(taken)
        of_link = np.repeat(np.arange(len(links)), [len(part) for part in taken])
        slots, counts, qualities = (rows[name].astype(np.int64) for name in ("start", "count", "quality"))
        checked = Checked(links, of_link, slots, counts, qualities)
        stored = compare_counts(session, checked).stored if dry_run else store_counts(session, checked)
        self._stored += stored.new
        self._replaced += stored.replaced
        self._unchanged += stored.unchanged
        self.moved += stored.moved


def _instant(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def _changed(how: str) -> Conflict:
    return Conflict(f"a link of the file was {how} while the file was read; nothing was stored; import it again")


def as_link(link: ImportedLink, grid: SlotGrid, default_zone: str = "") -> LinkIn:
    """Return a link of a file as one to store; a position that is none on earth is left out."""
    zone = default_zone if link.zone is None else link.zone.key
    if not zone:
        rule = (
            f"must be an IANA name such as Europe/Berlin to create link {link.link_id!r}: the file names no zone; give "
            "--zone (over REST ?zone=), or set FLOWCAST_DEFAULT_ZONE"
        )
        raise Invalid.field("zone", "", rule)
    values = {
        "link_id": link.link_id,
        "name": link.name.replace("\x00", "")[:LONGEST_NAME] or None,
        "zone": zone,
        "slot_minutes": grid.slot_minutes,
    }
    if link.latitude is not None and link.longitude is not None:
        position = {"type": "Point", "coordinates": (float(link.longitude), float(link.latitude))}
        try:
            return LinkIn.model_validate(values | {"geometry": position})
        except ValidationError:
            pass
    return LinkIn.model_validate(values)
