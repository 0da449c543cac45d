"""The SQL of taking counts in, in each database's own quick way."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from app.core.in_values import array_text, in_values
from app.counts.queries import Rows, as_rows, counts_between
from app.counts.tables import Count, CountCorrection
from app.links.tables import Link

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
