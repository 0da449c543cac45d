"""Counts in the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, String, and_, cast, func, insert, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.core.database import array_text, in_values, is_sqlite
from app.core.partitions import existing_months, month_begin, month_of
from app.core.times import Span
from app.counts.tables import Count, CountCorrection
from app.links.tables import Link

CountRows = NDArray[np.int64]  # (n, 4): link_key, slot_start, count, quality

SpanOf = Callable[[InstrumentedAttribute[int]], ColumnElement[bool]]
# Reads rows of links, within a span of slots; a row begins with the link's key and a slot, or None for no slot.
ReadRows = Callable[[Session, ColumnElement[bool], SpanOf], Sequence[Any]]

FETCHED_AT_ONCE = 200
# One number for a link and a slot: slots fit into 34 bits until the year 2514.
SLOT_BITS = 34
SPARSE = 4  # reading a whole span is quicker until it holds this many times the slots that are looked up

_COLUMNS = (Count.link_key, Count.slot_start, Count.count, Count.quality)
_UPSERT = """
    INSERT INTO counts (link_key, slot_start, count, quality) {rows}
    ON CONFLICT (link_key, slot_start) DO UPDATE SET count = excluded.count, quality = excluded.quality
"""
_SQLITE = _UPSERT.format(rows="VALUES (?, ?, ?, ?)")
# Four arrays are sent and planned once; as parameters, each of ten thousand rows would be so by itself.
_POSTGRESQL = _UPSERT.format(rows="SELECT * FROM unnest(%s::int[], %s::bigint[], %s::int[], %s::smallint[])")


def newest_slots(session: Session, link_keys: Sequence[int] | None = None) -> dict[int, int]:
    """Return the start of the newest slot with a count, of some links or all; links without a count are left out."""
    return newest_by_link(session, Count, link_keys)


def newest_by_link(session: Session, table: type[Any], link_keys: Sequence[int] | None) -> dict[int, int]:
    """Return the newest slot that some links, or all, have in a table; links that have none are left out."""

    def read(session: Session, of: ColumnElement[bool], within: SpanOf) -> Sequence[Any]:
        # A maximum a link walks one step down the primary key; GROUP BY would walk through every row.
        newest = select(func.max(table.slot_start)).where(table.link_key == Link.link_key, within(table.slot_start))
        return session.execute(select(Link.link_key, newest.scalar_subquery()).where(of)).all()

    return {row[0]: row[1] for row in recent_then_older(session, read, link_keys)}


def recent_then_older(session: Session, read: ReadRows, link_keys: Sequence[int] | None) -> list[Any]:
    """Return the rows of links at their newest slots; rows without a slot are left out.

    PostgreSQL plans for every month that a statement does not rule out. So this month and the last are read first, and
    all others only for links that have no slot in them. SQLite has no months.
    """
    if link_keys is not None and not link_keys:
        return []
    of = true() if link_keys is None else in_values(Link.link_key, link_keys)
    if is_sqlite(session):
        return [row for row in read(session, of, lambda _: true()) if row[1] is not None]
    since = month_begin(month_of(int(time.time())) - 1)
    found = list(read(session, of, lambda slots: slots >= since))
    if silent := [row[0] for row in found if row[1] is None]:
        found += read(session, in_values(Link.link_key, silent), lambda slots: slots < since)
    return [row for row in found if row[1] is not None]


def stored_span(session: Session, link_key: int) -> tuple[int | None, int | None]:
    """Return the starts of a link's oldest and newest slot with a count; None twice for a link without counts."""
    # Two statements, because each is one step down the primary key; SQLite would walk through all counts for both.
    newest = newest_slots(session, [link_key]).get(link_key)
    return None if newest is None else _oldest_slot(session, link_key), newest


def _oldest_slot(session: Session, link_key: int) -> int | None:
    oldest = select(func.min(Count.slot_start)).where(Count.link_key == link_key)
    if is_sqlite(session):
        return session.execute(oldest).scalar()
    # PostgreSQL reads the first month, the next two, the next four: most links are there from the beginning.
    months = sorted(existing_months(session.connection(), Count.__tablename__))
    place, n = 0, 1
    while place < len(months):
        part = months[place : place + n]
        within = Count.slot_start.between(month_begin(part[0]), month_begin(part[-1] + 1) - 1)
        found = session.execute(oldest.where(within)).scalar()
        if found is not None:
            return int(found)
        place, n = place + n, 2 * n
    return None


def newest_slot_end(session: Session) -> int | None:
    """Return the end of the newest slot that any link has a count for, in Unix seconds."""
    newest = newest_slots(session)
    minutes = {row.link_key: row.slot_minutes for row in session.execute(select(Link.link_key, Link.slot_minutes))}
    return max((slot + 60 * minutes[key] for key, slot in newest.items()), default=None)


def counts_between(session: Session, link_keys: Sequence[int], first: int, last: int) -> CountRows:
    """Return the counts of links whose slots start from ``first`` to ``last``, both included, in Unix seconds."""
    statement = select(*_COLUMNS).where(in_values(Count.link_key, link_keys), Count.slot_start.between(first, last))
    found: list[Any] = []
    # Over the connection: a session would look for objects in every row. From the driver's cursor: four
    # whole numbers need no row made of them, which would take four times as long.
    with session.connection().execute(statement.order_by(Count.link_key, Count.slot_start)) as result:
        assert result.cursor is not None
        while some := result.cursor.fetchmany(FETCHED_AT_ONCE):  # other threads only run between two fetches
            found += some
    return as_rows(found)


def counts_by_link(session: Session, link_keys: Sequence[int], first: int, last: int) -> dict[int, CountRows]:
    """Return the counts that ``counts_between`` reads, as rows of each link in no order.

    The database joins the counts of a link into one row, as text. That reads weeks of counts three times as fast
    as a row for each, and mostly without Python's lock; for a few counts of many links it is slower.
    """
    columns = (Count.slot_start, Count.count, Count.quality)
    if not is_sqlite(session):
        texts = [func.string_agg(cast(column, String), ",") for column in columns]
    else:  # takes numbers as they are, and joins them by commas
        texts = [func.group_concat(column) for column in columns]
    statement = select(Count.link_key, *texts).group_by(Count.link_key)
    statement = statement.where(in_values(Count.link_key, link_keys), Count.slot_start.between(first, last))
    found = dict.fromkeys(link_keys, as_rows([]))
    with session.connection().execute(statement) as result:
        cursor: Any = result.cursor
        for link_key, *joined in cursor:
            # A database reads the rows of a group once, so all three texts have the same order.
            slots, counts, qualities = (np.fromstring(text, dtype=np.int64, sep=",") for text in joined)
            found[link_key] = np.column_stack([np.full_like(slots, link_key), slots, counts, qualities])
    return found


def as_rows(found: Sequence[Any]) -> CountRows:
    """Return database rows of link_key, slot_start, count and quality as an array."""
    # numpy.array() is a hundred times slower, because it checks whether each row is an array.
    return np.fromiter(chain.from_iterable(found), dtype=np.int64, count=4 * len(found)).reshape(-1, 4)


def slots_in(link_key: int, span: Span) -> ColumnElement[bool]:
    """Return the condition that a count is one of a link whose slot starts in a span."""
    return and_(Count.link_key == link_key, Count.slot_start >= span.begin, Count.slot_start < span.end)


def number_of_counts(session: Session, link_key: int, span: Span) -> int:
    """Return how many counts a link has in the slots that start in a span."""
    return session.scalar(select(func.count()).select_from(Count).where(slots_in(link_key, span))) or 0


def corrections_between(session: Session, link_key: int, first: int, last: int) -> list[CountCorrection]:
    """Return the replaced counts of a link's slots from ``first`` to ``last``, both included, the oldest first."""
    statement = select(CountCorrection).where(CountCorrection.link_key == link_key)
    statement = statement.where(CountCorrection.slot_start.between(first, last))
    return list(session.scalars(statement.order_by(CountCorrection.slot_start, CountCorrection.id)))


def lock_links(session: Session, link_keys: list[int], *, wait: bool = True) -> None:
    """Lock links against other transactions that store their counts; SQLite has only one writer anyway.

    Without ``wait`` a link that is locked raises an ``OperationalError`` for which ``lock_denied`` is true.
    """
    if not is_sqlite(session):
        statement = select(Link.link_key).where(in_values(Link.link_key, link_keys)).order_by(Link.link_key)
        session.execute(statement.with_for_update(key_share=True, nowait=not wait)).all()


def upsert_counts(session: Session, rows: CountRows, *, dry_run: bool = False) -> tuple[int, int, int]:
    """Store what is new, replace what differs and keep the old among the corrections; a dry run only compares.

    The rows are sorted by link and slot, of which each comes once. Return how many were new, replaced another count,
    or were stored already.
    """
    old = _existing(session, rows)
    _, known, place = np.intersect1d(_link_and_slot(rows), _link_and_slot(old), assume_unique=True, return_indices=True)
    differs = (rows[known, 2:] != old[place, 2:]).any(axis=1)
    if not dry_run:
        _store_corrections(session, old[place[differs]])
        _upsert(session, np.delete(rows, known[~differs], axis=0))
    replaced = int(differs.sum())
    return len(rows) - len(known), replaced, len(known) - replaced


def _link_and_slot(rows: CountRows) -> NDArray[np.int64]:
    return rows[:, 0] << SLOT_BITS | rows[:, 1]


def _existing(session: Session, rows: CountRows) -> CountRows:
    """Return the stored counts at the links and slots of some rows, and perhaps more."""
    keys, begins = np.unique(rows[:, 0], return_index=True)
    first, last = int(rows[:, 1].min()), int(rows[:, 1].max())
    shortest = int(np.diff(rows[:, 1])[np.diff(rows[:, 0]) == 0].min(initial=last - first + 1))
    if len(keys) * (last - first) // shortest <= SPARSE * len(rows):
        return counts_between(session, keys.tolist(), first, last)
    found: list[Any] = []
    for of_link in np.split(rows, begins[1:]):
        at_slots = Count.link_key == int(of_link[0, 0]), in_values(Count.slot_start, of_link[:, 1].tolist())
        found += session.execute(select(*_COLUMNS).where(*at_slots)).all()
    return as_rows(found)


def _upsert(session: Session, rows: CountRows) -> None:
    if not len(rows):
        return
    connection = session.connection()
    if not is_sqlite(connection):
        connection.exec_driver_sql(_POSTGRESQL, tuple(array_text(column.tolist()) for column in rows.T))
    else:
        connection.exec_driver_sql(_SQLITE, list(zip(*rows.T.tolist(), strict=True)))


def _store_corrections(session: Session, replaced: CountRows) -> None:
    if len(replaced):
        names = ("link_key", "slot_start", "count", "quality")
        now = datetime.now(UTC)
        rows = [dict(zip(names, row, strict=True)) | {"replaced_at": now} for row in replaced.tolist()]
        session.execute(insert(CountCorrection), rows)
