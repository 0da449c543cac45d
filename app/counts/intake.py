"""A file's counts on their way into the database: checked link by link, stored, and accounted for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.clock import Clock
from app.counts.import_schemas import ImportedFile, RefusedEntry
from app.counts.import_spool import LinkRows, Rows
from app.counts.importers import ImportedCount, ImportedLink, ImportReport, Refusal
from app.counts.ingest import FUTURE_RULE, UNKNOWN_LINK, Checked, store_counts
from app.counts.tables import QUALITIES
from app.links.queries import LinkInfo, links_by_id
from app.links.schemas import LinkIn
from app.links.store import store_links
from app.slots import SlotGrid

MOST_LISTED = 100
LONGEST_NAME = 200


class CountSource(Protocol):
    """Counts with the links and the report that fill up as they are read, as ``CountReader`` has them."""

    @property
    def grid(self) -> SlotGrid:
        """The grid that slots are numbered on."""

    @property
    def links(self) -> dict[str, ImportedLink]:
        """The links seen so far."""

    @property
    def report(self) -> ImportReport:
        """What was read so far."""

    def __iter__(self) -> Iterator[ImportedCount]: ...


@dataclass
class Intake:
    """A file on its way in: what is known of its links, and what became of its counts so far."""

    session: Session
    source: CountSource
    clock: Clock
    moved: list[LinkInfo] = field(default_factory=list)
    newest_end: int = 0
    seen: int = 0
    _known: dict[str, LinkInfo] = field(default_factory=dict)
    _unknown: list[str] = field(default_factory=list)
    _created: int = 0
    _stored: int = 0
    _replaced: int = 0
    _unchanged: int = 0
    _repeated: int = 0
    _slots: list[int] = field(default_factory=list)
    _qualities: np.ndarray[tuple[int], np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros(len(QUALITIES), dtype=np.int64)
    )

    def begin(self, link_ids: list[str], create_links: bool) -> None:
        """Look the links up, and create those that do not exist if that is wanted."""
        wanted = list(self.source.links) if create_links else link_ids
        self._known = links_by_id(self.session, wanted)
        new = [self.source.links[link_id] for link_id in wanted if link_id not in self._known]
        if create_links and new:
            created = [as_link(link, self.source.grid) for link in new]
            self._created = store_links(self.session, created).created
            self._known = links_by_id(self.session, wanted)

    def take(self, group: list[LinkRows]) -> None:
        """Store the counts of some links, but for those that break a rule."""
        links: list[LinkInfo] = []
        taken: list[Rows] = []
        for link_id, rows in group:
            self.seen += len(rows)
            good = self._permitted(link_id, rows)
            if len(good):
                self._qualities += np.bincount(good["quality"], minlength=len(QUALITIES))
                latest = good[np.diff(good["slot"], append=-1) != 0]  # of several for one slot the last
                self._repeated += len(good) - len(latest)
                links.append(self._known[link_id])
                taken.append(latest)
        if taken:
            self._store(links, taken)

    def told(self, dry_run: bool) -> ImportedFile:
        """Sum up."""
        report, start = self.source.report, self.source.grid.start
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
            links_created=self._created,
            unknown_links=self._unknown[:MOST_LISTED],
            first_slot=start(min(self._slots)) if self._slots else None,
            last_slot=start(max(self._slots)) if self._slots else None,
            reasons=dict(report.reasons),
            suspects=dict(report.suspects),
            refusals=[RefusedEntry(**one._asdict() | {"line": one.line or None}) for one in report.refusals],
        )

    def _permitted(self, link_id: str, rows: Rows) -> Rows:
        """Give the counts of a link that may be stored, and refuse the others by name."""
        link, grid = self._known.get(link_id), self.source.grid
        if link is None:
            self._unknown.append(link_id)
            self._refuse("link_id", link_id, UNKNOWN_LINK, len(rows))
            return rows[:0]
        if link.slot_minutes != grid.slot_minutes:
            rule = f"must be that of the link, {link.slot_minutes}"
            self._refuse("slot_minutes", f"{grid.slot_minutes} for {link_id}", rule, len(rows))
            return rows[:0]
        seconds = link.slot_seconds
        past = bisect_left(rows["slot"], True, key=lambda slot: self.clock.is_future((int(slot) + 1) * seconds))
        if past < len(rows):
            first = f"{grid.start(int(rows['slot'][past])):%Y-%m-%dT%H:%M:%SZ} of {link_id}"
            self._refuse("slot_start", first, FUTURE_RULE, len(rows) - past)
        return rows[:past]

    def _refuse(self, name: str, value: str, reason: str, values: int) -> None:
        report = self.source.report
        report.counts -= values
        report.refuse(Refusal("the file", 0, name, value, reason, values))

    def _store(self, links: list[LinkInfo], taken: list[Rows]) -> None:
        rows = np.concatenate(taken)
        slots = rows["slot"] * (60 * self.source.grid.slot_minutes)
        of_link = np.repeat(np.arange(len(links)), [len(part) for part in taken])
        counts, qualities = rows["count"].astype(np.int64), rows["quality"].astype(np.int64)
        stored = store_counts(self.session, Checked(links, of_link, slots, counts, qualities))
        self._stored += stored.new
        self._replaced += stored.replaced
        self._unchanged += stored.unchanged
        self.moved += stored.moved
        self._slots = [min([*self._slots, int(rows["slot"].min())]), max([*self._slots, int(rows["slot"].max())])]
        self.newest_end = (self._slots[-1] + 1) * 60 * self.source.grid.slot_minutes


def as_link(link: ImportedLink, grid: SlotGrid) -> LinkIn:
    """Give a link of a file as one to store; a position that is none on earth is left out."""
    values = {
        "link_id": link.link_id,
        "name": link.name.replace("\x00", "")[:LONGEST_NAME] or None,
        "zone": link.zone.key,
        "slot_minutes": grid.slot_minutes,
    }
    if link.latitude is not None and link.longitude is not None:
        position = {"type": "Point", "coordinates": (float(link.longitude), float(link.latitude))}
        try:
            return LinkIn.model_validate(values | {"geometry": position})
        except ValidationError:
            pass
    return LinkIn.model_validate(values)
