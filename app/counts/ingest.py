"""Ingest counts: check them against links and slot grids, store them once, and issue forecasts after the commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from time import perf_counter, time
from typing import Literal, NamedTuple

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core import metrics
from app.core.clock import Clock
from app.core.database import Change, record_change, writing
from app.core.partitions import ensure_months
from app.core.slots import EPOCH
from app.core.times import parse_rfc_3339
from app.counts.importers.record import OFFSET_RULE, SECONDS, SLOT_RULE, YEAR_RULE
from app.counts.parsing import PostedCount, refused_batch, refused_count
from app.counts.queries import SLOT_BITS, CountRows, lock_links, newest_slots, upsert_counts
from app.counts.schemas import IngestReport, RefusedCount
from app.counts.tables import QUALITIES, Count
from app.links.queries import LinkInfo, links_by_id
from app.settings import ClockKind, Settings

log = logging.getLogger("flowcast.counts")

# A month is a table on PostgreSQL and stays until it is pruned: a batch of nonsense should not make hundreds.
MOST_NEW_MONTHS = 60

UNKNOWN_LINK = "must name a link that exists"
GRID_RULE = "must lie on the link's grid of slots"
ONCE_RULE = "must come only once for a link in a batch"
NOT_A_TIME = -1

_QUALITY_NUMBERS: dict[str, int] = {quality: number for number, quality in enumerate(QUALITIES)}


class IngestContext(NamedTuple):
    """Settings, database and clock for counts that are stored, and the function that issues forecasts afterwards."""

    settings: Settings
    engine: Engine
    clock: Clock
    issue_forecasts: Callable[[Sequence[LinkInfo]], int]  # of links that moved forward; returns of how many


class StoredCounts(NamedTuple):
    """Numbers of counts that were new, replaced another one or were stored before, and the links that moved forward."""

    new: int
    replaced: int
    unchanged: int
    moved: dict[LinkInfo, int]  # links, and their newest slots


def ingest_counts(
    context: IngestContext,
    parse: Callable[[], tuple[dict[int, PostedCount], list[RefusedCount]]],
    arrived: float,
    *,
    partial: bool,
) -> IngestReport:
    """Store a batch and issue forecasts; without ``partial`` one bad count refuses the batch.

    A link that another transaction holds raises an ``OperationalError`` for which ``lock_denied`` is true; nothing was
    stored then.
    """
    counts, refused = parse()
    with writing(context.engine) as session:
        links, rows, broken = check_counts(session, counts, context.clock)
        if broken and not partial:
            raise refused_batch(broken, len(counts))
        stored = store_counts(session, links, rows, wait=False)
        record_change(session, Change.COUNTS, [link.link_key for link in stored.moved])
    now = time()
    lags = [max(0.0, now - slot - link.slot_seconds) for link, slot in stored.moved.items()]
    metrics.COUNTS_STORED.inc(stored.new + stored.replaced)
    if context.settings.clock is ClockKind.WALL:  # a replay makes its own time, in which nothing is late
        for lag in lags:
            metrics.INGEST_LAG_SECONDS.observe(lag)
    return IngestReport(
        received=len(counts) + len(refused),
        stored=stored.new,
        replaced=stored.replaced,
        unchanged=stored.unchanged,
        refused=sorted([*refused, *broken], key=lambda one: one.index),
        forecasts_issued=issue_forecasts(context, list(stored.moved), arrived),
    )


def issue_forecasts(context: IngestContext, moved: Sequence[LinkInfo], arrived: float | None = None) -> int:
    """Issue forecasts of links that moved forward; return the number of links, 0 if it fails.

    The counts are committed and must be acknowledged: the next read of a forecast that is missing issues it.
    """
    if not moved:
        return 0
    try:
        issued = context.issue_forecasts(moved)
    except Exception:
        log.exception("forecasts were not issued")
        metrics.FAILED_ISSUES.inc()
        return 0
    if arrived is not None:
        metrics.ISSUE_SECONDS.observe(perf_counter() - arrived)
    return issued


def check_counts(
    session: Session, counts: Mapping[int, PostedCount], clock: Clock
) -> tuple[list[LinkInfo], CountRows, list[RefusedCount]]:
    """Check every count against its link and the slot grid.

    Return the links, the rows of counts that may be stored, and the counts that may not.
    """
    places, posted = list(counts), list(counts.values())
    starts = {text: _unix_start(text) for text in {row["slot_start"] for row in posted}}
    links = list(links_by_id(session, {row["link_id"] for row in posted}).values())
    index = {link.link_id: i for i, link in enumerate(links)}
    of_link = np.array([index.get(row["link_id"], -1) for row in posted], dtype=np.int64)
    slots = np.array([starts[row["slot_start"]][0] for row in posted], dtype=np.int64)
    values = np.array([row["count"] for row in posted], dtype=np.int64)
    qualities = np.array([_QUALITY_NUMBERS[row.get("quality", "observed")] for row in posted], dtype=np.int64)
    of_links = np.array([(link.link_key, link.slot_seconds) for link in links] or [(0, 1)], dtype=np.int64)
    keys, seconds = of_links[of_link].T
    repeated = np.ones(len(posted), dtype=np.bool_)
    repeated[np.unique(of_link << SLOT_BITS | slots, return_index=True)[1]] = False
    # In the order in which they are reported; a text that is no time breaks a rule of its own.
    rules = (UNKNOWN_LINK, "", GRID_RULE, clock.latest_rule, ONCE_RULE)
    off_grid, too_late = slots % seconds != 0, slots + seconds > clock.latest_end()
    broken = np.stack([of_link < 0, slots == NOT_A_TIME, off_grid, too_late, repeated])
    refused = []
    for i in np.flatnonzero(broken.any(axis=0)).tolist():
        rule = rules[broken[:, i].argmax()] or starts[posted[i]["slot_start"]][1]
        field: Literal["link_id", "slot_start"] = "link_id" if rule == UNKNOWN_LINK else "slot_start"
        refused.append(refused_count(places[i], posted[i], field, posted[i][field], rule))
    rows = np.column_stack([keys, slots, values, qualities])
    return links, rows[~broken.any(axis=0)], refused


def store_counts(
    session: Session, links: Sequence[LinkInfo], rows: CountRows, *, wait: bool = True, dry_run: bool = False
) -> StoredCounts:
    """Store what is new, replace what differs and keep the old in history, leave alone what is the same.

    A slot of a link comes once in ``rows``. Without ``wait`` a lock that another transaction holds raises an
    ``OperationalError`` for which ``lock_denied`` is true; nothing was stored then. A dry run locks and writes nothing.
    """
    if not len(rows):
        return StoredCounts(0, 0, 0, {})
    keys = np.unique(rows[:, 0]).tolist()
    if not dry_run:
        ensure_months(session, Count.__tablename__, rows[:, 1], wait=wait, most=MOST_NEW_MONTHS)
        lock_links(session, keys, wait=wait)
    newest_before = newest_slots(session, keys)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    new, replaced, unchanged = upsert_counts(session, rows, dry_run=dry_run)
    newest = dict(rows[np.diff(rows[:, 0], append=-1) != 0, :2].tolist())
    by_key = {link.link_key: link for link in links}
    moved = {by_key[key]: slot for key, slot in newest.items() if slot > newest_before.get(key, -1)}
    return StoredCounts(new, replaced, unchanged, moved)


def _unix_start(text: str) -> tuple[int, str]:
    """Return a posted time in Unix seconds, or ``NOT_A_TIME`` and the rule that it breaks."""
    moment = parse_rfc_3339(text)
    if moment is None:
        return NOT_A_TIME, SLOT_RULE
    if moment.tzinfo is None:
        return NOT_A_TIME, OFFSET_RULE
    whole, rest = divmod(moment - EPOCH, timedelta(seconds=1))
    if whole not in SECONDS:
        return NOT_A_TIME, YEAR_RULE
    # A fraction of a second is off every grid; an odd second cannot be mistaken for a slot.
    return whole | bool(rest), ""
