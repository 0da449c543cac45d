"""Import a file of counts: read and check all of it, store it in one transaction, and report every value.

Reading and checking need no lock. Only then are months created and links locked, all of them at once and in the order
of their keys, so that two imports cannot wait for each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import numpy as np
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.core import metrics
from app.core.clock import FUTURE_RULE
from app.core.database import reading, writing
from app.core.errors import Conflict, FieldError, Invalid, ProblemType
from app.core.partitions import MONTHLY, ensure_months, month_begin, month_of, months_of
from app.core.slots import SlotGrid
from app.core.times import instant_of
from app.counts.importers.reader import CountReader
from app.counts.importers.record import ImportedLink, Refusal
from app.counts.importers.slot_sums import FileRows, latest_rows
from app.counts.importers.spool import Note, Spool
from app.counts.ingest import UNKNOWN_LINK, IngestContext, issue_forecasts, store_counts
from app.counts.queries import lock_links
from app.counts.schemas import ImportedFile, RefusedEntry
from app.counts.tables import QUALITIES, Count, Quality
from app.links.queries import LinkInfo, links_by_id
from app.links.schemas import LinkIn
from app.links.store_links import store_links

MOST_LISTED = 100
MOST_NEW_MONTHS = 240
LONGEST_NAME = 200


def import_file(
    context: IngestContext,
    reader: CountReader,
    *,
    create_links: bool = False,
    dry_run: bool = False,
    note: Note | None = None,
) -> ImportedFile:
    """Store a file's good counts in one transaction, and issue forecasts for links whose newest slot moved forward.

    Of a file that cannot be read or summed nothing is stored. A dry run locks and writes nothing.
    """
    job = _Import(context, reader)
    with Spool(reader) as spool:
        spool.read(note)
        with reading(context.engine) as session:
            job.look_up(session, spool.link_ids, create_links)
        lengths = {link_id: link.slot_minutes for link_id, link in job.known.items()}
        spool.sum_into_slots(lengths, job.permitted)
        stored = 0
        with reading(context.engine) if dry_run else writing(context.engine) as session:
            if not dry_run:
                job.prepare(session)
            for group in spool.groups():
                job.store(session, group, dry_run)
                stored += sum(len(rows) for _, rows in group)
                if note is not None:
                    note(f"{stored:,} of {len(spool):,} counts stored")
    report = job.report(dry_run)
    if not dry_run:
        metrics.COUNTS_STORED.inc(report.stored + report.replaced)
        report.forecasts_issued = issue_forecasts(context, job.moved)
    return report


class _Import:
    """The links of a file as they are stored, and numbers of its counts so far."""

    def __init__(self, context: IngestContext, reader: CountReader) -> None:
        self._clock, self._default_zone, self._reader = context.clock, context.settings.default_zone, reader
        self.known: dict[str, LinkInfo] = {}
        self.moved: list[LinkInfo] = []
        self._new: list[LinkIn] = []
        self._unknown: list[str] = []
        self._months: set[int] = set()
        self._newest_end = 0
        self._slots: list[int] = []  # the first and the last one of a permitted count
        self._n = Counter(stored=0, replaced=0, unchanged=0, repeated=0, suspect=0, imputed=0)

    def look_up(self, session: Session, link_ids: list[str], create_links: bool) -> None:
        """Read the links of the file, and describe those that are to be created."""
        links = self._reader.links
        self.known = links_by_id(session, list(links) if create_links else link_ids)
        if create_links:
            grid, zone = self._reader.grid, self._default_zone
            self._new = [as_link(link, grid, zone) for link_id, link in links.items() if link_id not in self.known]
        for i, link in enumerate(self._new):
            name = link.link_id if link.name is None else link.name
            # Stored links have keys from 1, and -1 marks the end of an array.
            self.known[link.link_id] = LinkInfo(-2 - i, link.link_id, name, link.zone, link.slot_minutes, None)

    def permitted(self, link_id: str, rows: FileRows) -> FileRows:
        """Return the counts of a link that may be stored; refuse the others by name."""
        link = self.known.get(link_id)
        if link is None:
            self._unknown.append(link_id)
            self._refuse("link_id", link_id, UNKNOWN_LINK, len(rows))
            return rows[:0]
        seconds = link.slot_seconds
        past = bisect_left(rows["start"], True, key=lambda start: self._clock.is_future(int(start) + seconds))
        if past < len(rows):
            first = f"{instant_of(int(rows['start'][past])):%Y-%m-%dT%H:%M:%SZ} of {link_id}"
            self._refuse("slot_start", first, FUTURE_RULE, len(rows) - past)
            rows = rows[:past]
        if past:
            self._n["suspect"] += int((rows["quality"] == QUALITIES.index(Quality.SUSPECT)).sum())
            self._n["imputed"] += int((rows["quality"] == QUALITIES.index(Quality.IMPUTED)).sum())
            self._months |= months_of(rows["start"])
            slots = [*self._slots, int(rows["start"][0]), int(rows["start"][-1])]
            self._slots = [min(slots), max(slots)]
            self._newest_end = max(self._newest_end, slots[-1] + seconds)
        return rows

    def prepare(self, session: Session) -> None:
        """Create the months and the links that are missing, and lock those that exist.

        Raise ``Conflict`` if a link was created, deleted or given another slot length since it was looked up.
        """
        if not self._months and not self._new:
            return
        ensure_months(session, Count.__tablename__, map(month_begin, self._months), most=MOST_NEW_MONTHS)
        before = {link.link_id: link for link in self.known.values() if link.link_key > 0}
        if self._new:
            # While links are written no month can be created, and posted counts may need these two.
            now = month_of(max(int(self._clock.now().timestamp()), self._newest_end))  # a feed may begin with this file
            for table in MONTHLY:
                ensure_months(session, table, map(month_begin, (now, now + 1)))
            if store_links(session, self._new).created != len(self._new):
                raise _changed("created")
        lock_links(session, [link.link_key for link in before.values()])
        self.known = links_by_id(session, list(self.known))
        for link_id, link in before.items():
            locked = self.known.get(link_id)
            if locked is None or locked.link_key != link.link_key:
                raise _changed(f"deleted: {link_id!r}")
            if locked.slot_minutes != link.slot_minutes:
                raise _changed(f"given another slot length: {link_id!r}")

    def store(self, session: Session, group: list[tuple[str, FileRows]], dry_run: bool) -> None:
        """Store the counts of some links, or only compare them with what is stored."""
        parts = []
        for link_id, rows in group:
            latest = latest_rows(rows)
            self._n["repeated"] += len(rows) - len(latest)
            keys = np.full(len(latest), self.known[link_id].link_key, dtype=np.int64)
            parts.append(np.column_stack([keys, latest["start"], latest["count"], latest["quality"]]))
        if parts:
            links = [self.known[link_id] for link_id, _ in group]
            stored = store_counts(session, links, np.concatenate(parts), dry_run=dry_run)
            self._n.update(stored=stored.new, replaced=stored.replaced, unchanged=stored.unchanged)
            self.moved += stored.moved

    def report(self, dry_run: bool) -> ImportedFile:
        """Return the report of every value."""
        report = self._reader.report
        return ImportedFile(
            format=report.layout,
            dry_run=dry_run,
            rows=report.rows,
            values=report.values,
            gaps=report.gaps,
            refused=report.refused,
            links=len(self._reader.links),
            links_created=len(self._new),
            unknown_links=self._unknown[:MOST_LISTED],
            first_slot=instant_of(self._slots[0]) if self._slots else None,
            last_slot=instant_of(self._slots[1]) if self._slots else None,
            reasons=dict(report.reasons),
            suspects=dict(report.suspects),
            notes=report.notes,
            refusals=[RefusedEntry(**one._asdict() | {"line": one.line or None}) for one in report.refusals],
            **self._n,
        )

    def _refuse(self, name: str, value: str, reason: str, values: int) -> None:
        report = self._reader.report
        report.counts -= values
        report.refuse(Refusal("the file", 0, name, value, reason, values))


def as_link(link: ImportedLink, grid: SlotGrid, default_zone: str = "") -> LinkIn:
    """Return a link of a file as one to store; a position outside the valid degrees is left out."""
    zone = default_zone if link.zone is None else link.zone.key
    if not zone:
        rule = (
            f"is required to create link {link.link_id!r}, because the file names none: give --zone (zone= over REST) "
            "or set FLOWCAST_DEFAULT_ZONE, such as Europe/Berlin"
        )
        raise Invalid(f"zone {rule}", [FieldError("zone", "", rule)])
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


def _changed(how: str) -> Conflict:
    return Conflict(
        ProblemType.LINK_CHANGED,
        f"a link of the file was {how} while the file was read, so nothing was stored; import the file again",
    )
