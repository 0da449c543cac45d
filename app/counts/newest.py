"""The newest slot of every link, however much history lies before it, and the oldest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.core.in_values import in_values
from app.core.months import month_begin, month_of
from app.core.partitions import months_there
from app.links.tables import Link

SpanOf = Callable[[InstrumentedAttribute[int]], ColumnElement[bool]]
# Asks about links, within a span of slots; gives rows that begin with the link's key and a slot, or None for no slot.
Ask = Callable[[Session, ColumnElement[bool], SpanOf], Sequence[Any]]


def newest_by_link(session: Session, table: type[Any], link_keys: Sequence[int] | None) -> dict[int, int]:
    """Give the newest slot that some links, or all, have in a table; links that have none are left out."""

    def ask(session: Session, of: ColumnElement[bool], within: SpanOf) -> Sequence[Any]:
        # A maximum a link walks one step down the primary key; GROUP BY would walk through every row.
        newest = select(func.max(table.slot_start)).where(table.link_key == Link.link_key, within(table.slot_start))
        return session.execute(select(Link.link_key, newest.scalar_subquery()).where(of)).all()

    return {row[0]: row[1] for row in recent_then_older(session, ask, link_keys)}


def oldest_of_link(session: Session, table: type[Any], link_key: int) -> int | None:
    """Give the oldest slot that a link has in a table."""
    oldest = select(func.min(table.slot_start)).where(table.link_key == link_key)
    if session.get_bind().dialect.name != "postgresql":
        return session.execute(oldest).scalar()
    # PostgreSQL is asked about the first month, the next two, the next four: most links are there from the beginning.
    months = sorted(months_there(session.connection(), table.__tablename__))
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
