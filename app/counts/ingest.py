"""Take counts in: checked against their links and slot grids, then stored once, whatever is sent twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.clock import Clock
from app.core.errors import FieldError
from app.core.partitions import ensure_months
from app.core.slots import EPOCH
from app.core.times import parse_rfc_3339
from app.counts.importers.own_row import OFFSET_RULE, SLOT_RULE
from app.counts.importers.record import LINK_ID, LINK_ID_RULE, SECONDS, YEAR_RULE, shortened
from app.counts.queries import Rows, existing_counts, keep_corrections, lock_links, newest_slots, upsert_counts
from app.counts.tables import Count
from app.links.queries import LinkInfo, links_by_id
from app.settings import Settings


class IssueForecasts(Protocol):
    """Issues forecasts of links whose newest slot moved forward."""

    def __call__(self, links: Sequence[LinkInfo], stored: Rows | None = None) -> int:
        """Return how many links have a new forecast; ``stored`` are the counts that moved them."""


class IngestContext(NamedTuple):
    """What storing counts needs."""

    settings: Settings
    engine: Engine
    clock: Clock
    issue_forecasts: IssueForecasts


async def get_ingest_context(request: Request) -> IngestContext:
    """Return what storing counts needs, as the service has opened it."""
    state = request.app.state
    return IngestContext(state.settings, state.engine, state.clock, state.issue_forecasts)


IngestContextDep = Annotated[IngestContext, Depends(get_ingest_context)]


Integers = NDArray[np.int64]

# One number for a link and a slot: slots fit into 34 bits until the year 2514.
SLOT_BITS = 34

# A month is a table on PostgreSQL and stays until it is pruned: a batch of nonsense should not make hundreds.
MOST_NEW_MONTHS = 60

UNKNOWN_LINK = "must name a link that exists"
ONCE_RULE = "must come only once for a link in a batch"
NOT_A_TIME = -1


@dataclass(frozen=True)
class Batch:
    """Counts as they were sent, column by column; ``places`` says where each stood."""

    link_ids: Sequence[str]
    slot_starts: Sequence[str]
    counts: Sequence[int]
    qualities: Sequence[int]
    places: Sequence[int] | None = None

    def place(self, row: int) -> int:
        """Where a row stood in what was sent."""
        return row if self.places is None else self.places[row]


class Refused(NamedTuple):
    """One count that was not taken: where it stood, and the rule it broke."""

    place: int
    link_id: str
    slot_start: str
    error: FieldError


@dataclass(frozen=True)
class Checked:
    """Counts that may be stored, as arrays of one length, and those that may not."""

    links: list[LinkInfo]
    of_link: Integers  # which of the links each count belongs to
    slots: Integers  # Unix seconds
    counts: Integers
    qualities: Integers
    refused: list[Refused] = field(default_factory=list)


class Stored(NamedTuple):
    """What became of a batch, and the links whose newest slot moved forward."""

    new: int
    replaced: int
    unchanged: int
    moved: list[LinkInfo]
    rows: Integers  # as they are in the database now: link_key, slot_start, count, quality, by link and slot


def check_batch(session: Session, batch: Batch, clock: Clock) -> Checked:
    """Check every count against its link and the slot grid; the fast way finds nothing to refuse."""
    known = links_by_id(session, [link_id for link_id in set(batch.link_ids) if LINK_ID.fullmatch(link_id)])
    links = list(known.values())
    index = {link.link_id: i for i, link in enumerate(links)}
    starts = {text: _unix_seconds(text) for text in set(batch.slot_starts)}
    of_link = np.array([index.get(link_id, -1) for link_id in batch.link_ids], dtype=np.int64)
    slots = np.array([starts[text] for text in batch.slot_starts], dtype=np.int64)
    rules = _broken_rules(links, of_link, slots, clock)
    good = ~np.logical_or.reduce([broken for broken, _, _ in rules]) if len(slots) else np.zeros(0, dtype=bool)
    refused = [] if good.all() else [_refused(batch, int(row), rules) for row in np.flatnonzero(~good)]
    return Checked(
        links,
        of_link[good],
        slots[good],
        np.array(batch.counts, dtype=np.int64)[good],
        np.array(batch.qualities, dtype=np.int64)[good],
        refused,
    )


class Comparison(NamedTuple):
    """What storing a batch does: the summary, the stored rows that it replaces, and the rows that it writes."""

    stored: Stored
    replaced: Integers
    written: Integers


def store_counts(session: Session, checked: Checked, now: datetime | None = None, *, wait: bool = True) -> Stored:
    """Store what is new, replace what differs and keep the old in history, leave alone what is the same.

    Without ``wait`` a lock that another transaction holds raises an ``OperationalError`` for which ``lock_denied``
    is true; nothing was stored then.
    """
    if not len(checked.slots):
        return Stored(0, 0, 0, [], np.empty((0, 4), dtype=np.int64))
    ensure_months(session, Count.__tablename__, checked.slots, wait=wait, most=MOST_NEW_MONTHS)
    lock_links(session, [checked.links[i].link_key for i in np.unique(checked.of_link)], wait=wait)
    compared = compare_counts(session, checked)
    keep_corrections(session, compared.replaced, now or datetime.now(UTC))
    upsert_counts(session, compared.written)
    return compared.stored


def compare_counts(session: Session, checked: Checked) -> Comparison:
    """Compare a batch, which must not be empty, with what is stored; nothing is written."""
    links = checked.links
    keys = np.array([link.link_key for link in links], dtype=np.int64)
    before = newest_slots(session, keys[np.unique(checked.of_link)].tolist())
    rows = np.column_stack([keys[checked.of_link], checked.slots, checked.counts, checked.qualities])
    rows = rows[np.argsort(rows[:, 0] << SLOT_BITS | rows[:, 1], kind="stable")]
    old = existing_counts(session, rows)
    stored, there = _matching(rows, old)
    changed = there & (old[stored][:, 2:] != rows[:, 2:]).any(axis=1) if len(old) else there
    by_key = {link.link_key: link for link in links}
    moved = [by_key[key] for key, slot in _newest(rows).items() if slot > before.get(key, -1)]
    summary = Stored(int((~there).sum()), int(changed.sum()), int((there & ~changed).sum()), moved, rows)
    return Comparison(summary, old[stored[changed]], rows[~there | changed])


def moved_ends(stored: Stored) -> list[int]:
    """Return the ends, in Unix seconds, of the slots that links moved forward to."""
    newest = _newest(stored.rows)
    return [newest[link.link_key] + link.slot_seconds for link in stored.moved]


def _newest(rows: Integers) -> dict[int, int]:
    last = np.flatnonzero(np.diff(rows[:, 0], append=-1))  # rows are sorted by link and slot
    return {int(key): int(slot) for key, slot in rows[last, :2]}


def _matching(rows: Integers, old: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Find each row's place among the old ones, sorted alike, and whether it is there at all."""
    if not len(old):
        return np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
    wanted, present = rows[:, 0] << SLOT_BITS | rows[:, 1], old[:, 0] << SLOT_BITS | old[:, 1]
    place = np.minimum(np.searchsorted(present, wanted), len(old) - 1)
    return place, present[place] == wanted


def _broken_rules(
    links: list[LinkInfo], of_link: Integers, slots: Integers, clock: Clock
) -> list[tuple[NDArray[np.bool_], str, str]]:
    """Return for every rule which counts break it, in the order in which they are reported."""
    unknown = of_link < 0
    seconds = np.array([link.slot_seconds for link in links] or [900], dtype=np.int64)[of_link]
    off_grid = ~unknown & (slots >= 0) & (slots % seconds != 0)
    too_late = ~unknown & (slots >= 0) & (slots + seconds > clock.latest_end())
    _, first = np.unique(of_link << SLOT_BITS | np.maximum(slots, 0), return_index=True)
    again = np.ones(len(slots), dtype=bool)
    again[first] = False
    return [
        (unknown, "link_id", UNKNOWN_LINK),
        (slots < 0, "slot_start", ""),
        (off_grid, "slot_start", "must lie on the link's grid of slots"),
        (too_late, "slot_start", clock.latest_rule),
        (again & ~unknown & (slots >= 0), "slot_start", ONCE_RULE),
    ]


def _refused(batch: Batch, row: int, rules: list[tuple[NDArray[np.bool_], str, str]]) -> Refused:
    name, rule = next((name, rule) for broken, name, rule in rules if broken[row])
    link_id, slot_start = batch.link_ids[row], batch.slot_starts[row]
    value = link_id if name == "link_id" else slot_start
    reason = rule or _broken_rule(parse_rfc_3339(slot_start))
    if name == "link_id" and not LINK_ID.fullmatch(link_id):
        reason = LINK_ID_RULE
    return Refused(
        batch.place(row), shortened(link_id), shortened(slot_start), FieldError(name, shortened(value), reason)
    )


def _unix_seconds(text: str) -> int:
    """Return a posted time in Unix seconds; ``NOT_A_TIME`` if it breaks a rule."""
    moment = parse_rfc_3339(text)
    if moment is None or _broken_rule(moment):
        return NOT_A_TIME
    rest = (moment - EPOCH).total_seconds()
    # A fraction of a second is off every grid; half a slot further it cannot be mistaken for another.
    return int(rest) if rest == int(rest) else int(rest) | 1


def _broken_rule(moment: datetime | None) -> str:
    """Return the rule that a posted time breaks; empty if it breaks none."""
    if moment is None:
        return SLOT_RULE
    if moment.tzinfo is None:
        return OFFSET_RULE
    return "" if (moment - EPOCH) // timedelta(seconds=1) in SECONDS else YEAR_RULE
