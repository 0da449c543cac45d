"""Counts in the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, String, and_, cast, func, insert, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.core.database import array_text, in_values
from app.core.partitions import existing_months, month_begin, month_of
from app.core.times import Span
from app.counts.tables import Count, CountCorrection
from app.links.tables import Link

SpanOf = Callable[[InstrumentedAttribute[int]], ColumnElement[bool]]
# Asks about links, within a span of slots; gives rows that begin with the link's key and a slot, or None for no slot.
Ask = Callable[[Session, ColumnElement[bool], SpanOf], Sequence[Any]]


def newest_by_link(session: Session, table: type[Any], link_keys: Sequence[int] | None) -> dict[int, int]:
    """Return the newest slot that some links, or all, have in a table; links that have none are left out."""

    def ask(session: Session, of: ColumnElement[bool], within: SpanOf) -> Sequence[Any]:
        # A maximum a link walks one step down the primary key; GROUP BY would walk through every row.
        newest = select(func.max(table.slot_start)).where(table.link_key == Link.link_key, within(table.slot_start))
        return session.execute(select(Link.link_key, newest.scalar_subquery()).where(of)).all()

    return {row[0]: row[1] for row in recent_then_older(session, ask, link_keys)}


def oldest_of_link(session: Session, table: type[Any], link_key: int) -> int | None:
    """Return the oldest slot that a link has in a table."""
    oldest = select(func.min(table.slot_start)).where(table.link_key == link_key)
    if session.get_bind().dialect.name != "postgresql":
        return session.execute(oldest).scalar()
    # PostgreSQL is asked about the first month, the next two, the next four: most links are there from the beginning.
    months = sorted(existing_months(session.connection(), table.__tablename__))
    place, n = 0, 1
    while place < len(months):
        part = months[place : place + n]
        within = table.slot_start.between(month_begin(part[0]), month_begin(part[-1] + 1) - 1)
        found = session.execute(oldest.where(within)).scalar()
        if found is not None:
            return int(found)
        place, n = place + n, 2 * n
    return None


def recent_then_older(session: Session, ask: Ask, link_keys: Sequence[int] | None) -> list[Any]:
    """Ask about the newest slots of links; rows without a slot are left out.

    PostgreSQL prepares for every month that a question does not rule out, so it is asked about this month and
    the last, and once more about all before only for links that fell silent. SQLite has no months.
    """
    if session.get_bind().dialect.name != "postgresql":
        return [row for row in _asked(session, ask, link_keys, lambda _: true()) if row[1] is not None]
    since = month_begin(month_of(int(time.time())) - 1)
    found = _asked(session, ask, link_keys, lambda slots: slots >= since)
    silent = [row[0] for row in found if row[1] is None]
    found += _asked(session, ask, silent, lambda slots: slots < since)
    return [row for row in found if row[1] is not None]


def _asked(session: Session, ask: Ask, link_keys: Sequence[int] | None, within: SpanOf) -> list[Any]:
    if link_keys is not None and not link_keys:
        return []
    return list(ask(session, true() if link_keys is None else in_values(Link.link_key, link_keys), within))


Rows = NDArray[np.int64]  # (n, 4): link_key, slot_start, count, quality
AT_ONCE = 200


def newest_slots(session: Session, link_keys: Sequence[int] | None = None) -> dict[int, int]:
    """Start of the newest slot with a count, of some links or all; links without a count are left out."""
    return newest_by_link(session, Count, link_keys)


def stored_span(session: Session, link_key: int) -> tuple[int | None, int | None]:
    """Find the starts of a link's oldest and newest slot with a count; None twice where there is none."""
    # Two questions, for each is one step down the primary key; SQLite would walk through all counts for both at once.
    newest = newest_by_link(session, Count, [link_key]).get(link_key)
    return None if newest is None else oldest_of_link(session, Count, link_key), newest


def newest_slot_end(session: Session) -> int | None:
    """End of the newest slot that any link has a count for, in Unix seconds."""
    newest = newest_slots(session)
    minutes = {row.link_key: row.slot_minutes for row in session.execute(select(Link.link_key, Link.slot_minutes))}
    return max((slot + 60 * minutes[key] for key, slot in newest.items()), default=None)


def counts_between(session: Session, link_keys: Sequence[int], first: int, last: int) -> Rows:
    """Return the counts of links whose slots start from ``first`` to ``last``, both included, in Unix seconds."""
    question = select(Count.link_key, Count.slot_start, Count.count, Count.quality)
    question = question.where(in_values(Count.link_key, link_keys), Count.slot_start.between(first, last))
    found: list[Any] = []
    # Over the connection: a session would look for objects in every row. From the driver's cursor: four
    # whole numbers need no row made of them, which would take four times as long.
    with session.connection().execute(question.order_by(Count.link_key, Count.slot_start)) as result:
        assert result.cursor is not None
        while some := result.cursor.fetchmany(AT_ONCE):  # a driver lets nobody else have a turn meanwhile
            found += some
    return as_rows(found)


def counts_by_link(session: Session, link_keys: Sequence[int], first: int, last: int) -> dict[int, Rows]:
    """Read the counts that ``counts_between`` reads, as rows of each link in no order.

    The database joins the counts of a link into one row, as text. That reads weeks of counts three times as fast
    as a row for each, and mostly without Python's lock; for a few counts of many links it is slower.
    """
    columns = (Count.slot_start, Count.count, Count.quality)
    if session.get_bind().dialect.name == "postgresql":
        texts = [func.string_agg(cast(column, String), ",") for column in columns]
    else:  # takes numbers as they are, and joins them by commas
        texts = [func.group_concat(column) for column in columns]
    question = select(Count.link_key, *texts).group_by(Count.link_key)
    question = question.where(in_values(Count.link_key, link_keys), Count.slot_start.between(first, last))
    found = dict.fromkeys(link_keys, as_rows([]))
    with session.connection().execute(question) as result:
        cursor: Any = result.cursor
        for link_key, *joined in cursor:
            # A database reads the rows of a group once, so all three texts have the same order.
            slots, counts, qualities = (np.fromstring(text, dtype=np.int64, sep=",") for text in joined)
            found[link_key] = np.column_stack([np.full_like(slots, link_key), slots, counts, qualities])
    return found


def slots_in(link_key: int, span: Span) -> ColumnElement[bool]:
    """Return the condition that a count is one of a link whose slot starts in a span."""
    return and_(Count.link_key == link_key, Count.slot_start >= span.begin, Count.slot_start < span.end)


def number_of_counts(session: Session, link_key: int, span: Span) -> int:
    """Return how many counts a link has in the slots that start in a span."""
    return session.scalar(select(func.count()).select_from(Count).where(slots_in(link_key, span))) or 0


def as_rows(found: Sequence[Any]) -> Rows:
    """Return database rows of link_key, slot_start, count and quality as an array."""
    # numpy.array() would ask each row in turn whether it is an array: a hundred times slower.
    return np.fromiter(chain.from_iterable(found), dtype=np.int64, count=4 * len(found)).reshape(-1, 4)


def corrections_between(session: Session, link_key: int, first: int, last: int) -> list[CountCorrection]:
    """Return the replaced counts of a link's slots from ``first`` to ``last``, both included, the oldest first."""
    question = select(CountCorrection).where(CountCorrection.link_key == link_key)
    question = question.where(CountCorrection.slot_start.between(first, last))
    return list(session.scalars(question.order_by(CountCorrection.slot_start, CountCorrection.id)))


SPARSE = 4  # reading a whole span is quicker until it holds this many times the slots asked for

_UPSERT = """
    INSERT INTO counts (link_key, slot_start, count, quality) {rows}
    ON CONFLICT (link_key, slot_start) DO UPDATE SET count = excluded.count, quality = excluded.quality
"""
# A hundred rows to a statement take SQLite 60 % of the time of a hundred statements.
ROWS_A_STATEMENT = 100
_SQLITE_ROW = "(?, ?, ?, ?)"
# Four arrays travel and are planned once, where ten thousand rows of parameters would each be on their own.
_POSTGRESQL = _UPSERT.format(rows="SELECT * FROM unnest(%s::int[], %s::bigint[], %s::int[], %s::smallint[])")


def lock_links(session: Session, link_keys: list[int], *, wait: bool = True) -> None:
    """Lock links against others who store their counts; SQLite has only one writer anyway.

    Without ``wait`` a link that is locked raises an ``OperationalError`` for which ``lock_denied`` is true.
    """
    if session.get_bind().dialect.name == "postgresql":
        question = select(Link.link_key).where(in_values(Link.link_key, link_keys)).order_by(Link.link_key)
        session.execute(question.with_for_update(key_share=True, nowait=not wait)).all()


def existing_counts(session: Session, rows: Rows) -> Rows:
    """Return the stored counts at the links and slots of ``rows``, which are sorted by both, and perhaps more."""
    keys, begins, n = np.unique(rows[:, 0], return_index=True, return_counts=True)
    first, last = int(rows[:, 1].min()), int(rows[:, 1].max())
    shortest = int(np.diff(rows[:, 1])[np.diff(rows[:, 0]) == 0].min(initial=last - first + 1))
    if len(keys) * (last - first) // shortest <= SPARSE * len(rows):
        return counts_between(session, keys.tolist(), first, last)
    found = [
        _at_slots(session, int(key), rows[begin : begin + m, 1]) for key, begin, m in zip(keys, begins, n, strict=True)
    ]
    return np.concatenate(found)


def _at_slots(session: Session, link_key: int, slots: NDArray[np.int64]) -> Rows:
    question = select(Count.link_key, Count.slot_start, Count.count, Count.quality).order_by(Count.slot_start)
    question = question.where(Count.link_key == link_key, in_values(Count.slot_start, slots.tolist()))
    return as_rows(session.execute(question).all())


def upsert_counts(session: Session, rows: Rows) -> None:
    """Store counts, replacing those that are there."""
    if not len(rows):
        return
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_POSTGRESQL, tuple(array_text(column.tolist()) for column in rows.T))
        return
    whole = len(rows) - len(rows) % ROWS_A_STATEMENT
    for n, part in ((ROWS_A_STATEMENT, rows[:whole]), (len(rows) - whole, rows[whole:])):
        if len(part):
            connection.exec_driver_sql(_sqlite_upsert(n), [tuple(flat) for flat in part.reshape(-1, 4 * n).tolist()])


@lru_cache
def _sqlite_upsert(rows: int) -> str:
    return _UPSERT.format(rows="VALUES " + ", ".join([_SQLITE_ROW] * rows))


def keep_corrections(session: Session, replaced: Rows, now: datetime) -> None:
    """Keep counts that are about to be replaced."""
    if len(replaced):
        names = ("link_key", "slot_start", "count", "quality")
        rows = [dict(zip(names, row, strict=True)) | {"replaced_at": now} for row in replaced.tolist()]
        session.execute(insert(CountCorrection), rows)
