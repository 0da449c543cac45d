"""The months of counts and forecasts on PostgreSQL: a table each, made before something is written to it.

There is no table for "all other months": it would have to be searched by every question that does not
name its slots, and scanned under a lock whenever a month is made. So whoever writes asks for the months first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

import numpy as np
from sqlalchemy import Connection, NullPool, Pool, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.core.errors import Invalid

FIRST_YEAR = 1970


def month_of(second: int) -> int:
    """Return the month of a Unix second."""
    moment = datetime.fromtimestamp(second, UTC)
    return 12 * (moment.year - FIRST_YEAR) + moment.month - 1


def months_of(seconds: Iterable[int]) -> set[int]:
    """Return the months of Unix seconds."""
    whole = np.fromiter(seconds, dtype=np.int64)
    return set(np.unique(whole.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)).tolist())


def month_begin(month: int) -> int:
    """Return the Unix second at which a month begins."""
    return int(datetime(FIRST_YEAR + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp())


def month_name(month: int) -> str:
    """Write a month as a table's name ends with it."""
    return f"{FIRST_YEAR + month // 12}_{month % 12 + 1:02}"


def month_named(name: str) -> int:
    """Read the month that a table's name ends with."""
    year, month = name.rsplit("_", 2)[1:]
    return 12 * (int(year) - FIRST_YEAR) + int(month) - 1


MONTHLY = ("counts", "forecasts")
# A month is dropped two days after its end at the earliest, and believed to be there for one without a question.
DROPPED_AFTER = 2 * 86_400
BELIEVED_AFTER = 86_400
# The same for months to come: a worker makes two ahead.
BELIEVED_AHEAD = 70 * 86_400
DROPPED_AHEAD = 100 * 86_400
BELIEVED_SECONDS = 60.0  # as long as that somebody's DROP TABLE by hand may go unnoticed
LOCK_TIMEOUT = "2s"  # so long others may have to wait behind whoever makes a month
TRIES = 15

_known: WeakKeyDictionary[Pool, dict[tuple[str, int], float]] = WeakKeyDictionary()  # and when it was seen
_making = threading.Lock()

_THERE = text("""
    SELECT month.relname FROM pg_inherits JOIN pg_class AS month ON month.oid = inhrelid
    WHERE inhparent = CAST(:table AS regclass) AND NOT inhdetachpending
""")
# Making a month locks links against other writers of links, and the table against other makers of months.
_IN_THE_WAY = text("""
    SELECT EXISTS (
        SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND granted AND (
            relation = CAST('links' AS regclass) AND mode NOT IN ('AccessShareLock', 'RowShareLock')
            OR relation = CAST(:table AS regclass)
            AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
        )
    )
""")


def ensure_months(
    session: Session, table: str, slots: Iterable[int], *, wait: bool = True, most: int | None = None
) -> None:
    """See to it that every slot has its month to be written to, and keeps it until this transaction is over.

    A missing month is made in a transaction of its own, so that it is there for all at once and stays
    whatever becomes of this one. To be called before rows of links are locked: making a month waits for
    those who write links, and these may wait for the rows. Without ``wait`` a month that cannot be made at once
    raises an ``OperationalError`` for which ``lock_denied`` is true. More than ``most`` missing months raise
    ``Invalid``, and none is made.
    """
    if session.get_bind().dialect.name != "postgresql":
        return
    connection = session.connection()
    wanted = months_of(slots)
    known = _known.setdefault(connection.engine.pool, {})
    # A transaction that has written to a table goes on with the months it knew then, until it locks a new one.
    first_time = session.info.setdefault((ensure_months, table), True)
    session.info[ensure_months, table] = False
    if first_time and all(_believed(known, table, month) for month in wanted):
        return
    connection.exec_driver_sql(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE")  # nobody drops a month while it is held
    missing, names = wanted - months_there(connection, table), _names(table, wanted)
    if most is not None and len(missing) > most:
        raise _too_many(missing, most)
    if missing and connection.execute(_IN_THE_WAY, {"table": table}).scalar_one():
        make_months(connection, table, missing)  # another transaction would wait for this one for ever
        wanted -= missing  # they go if this is rolled back
    elif missing:
        _make_apart(connection, table, missing, wait=wait)
    if names:
        connection.exec_driver_sql(f"LOCK TABLE {names} IN ROW EXCLUSIVE MODE")
    known.update(dict.fromkeys(((table, month) for month in wanted), time.monotonic()))


def months_there(connection: Connection, table: str) -> set[int]:
    """Return the months that a table has."""
    return {month_named(name) for name in connection.execute(_THERE, {"table": table}).scalars()}


def make_months(connection: Connection, table: str, months: set[int], *, wait: bool = True) -> None:
    """Make months, one maker at a time; readers and those who write counts go on meanwhile."""
    # The mode that the foreign key will need.
    connection.exec_driver_sql(f"LOCK TABLE links IN SHARE ROW EXCLUSIVE MODE{'' if wait else ' NOWAIT'}")
    for month in sorted(months - months_there(connection, table)):
        name = f"{table}_{month_name(month)}"
        # CREATE TABLE ... PARTITION OF would lock the whole table against readers.
        connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ATTACH PARTITION {name} "
            f"FOR VALUES FROM ({month_begin(month)}) TO ({month_begin(month + 1)})"
        )


def _too_many(missing: set[int], most: int) -> Invalid:
    first, last = (month_name(month).replace("_", "-") for month in (min(missing), max(missing)))
    value = f"{len(missing)} months that have no counts yet, {first} to {last}"
    return Invalid.field(
        "slot_start", value, f"must begin at most {most} new months at once; send fewer years at a time"
    )


def _names(table: str, months: set[int]) -> str:
    return ", ".join(f"{table}_{month_name(month)}" for month in sorted(months))


def _make_apart(connection: Connection, table: str, months: set[int], *, wait: bool) -> None:
    # Not from the pool: all its connections may be held by others who wait for the same month.
    engine = create_engine(connection.engine.url, poolclass=NullPool)
    with _making if wait else nullcontext():
        for left in reversed(range(TRIES if wait else 1)):
            try:
                with engine.begin() as apart:
                    apart.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                    make_months(apart, table, months, wait=wait)
                return
            except OperationalError as problem:
                if not left or not lock_denied(problem):  # else somebody writes links and takes their time
                    raise


def lock_denied(problem: OperationalError) -> bool:
    """Return whether a statement failed only for a lock that somebody else held."""
    return getattr(problem.orig, "sqlstate", None) in ("55P03", "40P01")


def _believed(known: dict[tuple[str, int], float], table: str, month: int) -> bool:
    seen = known.get((table, month))
    return (
        seen is not None
        and time.monotonic() - seen < BELIEVED_SECONDS
        and month_begin(month + 1) > time.time() - BELIEVED_AFTER
        and month_begin(month) < time.time() + BELIEVED_AHEAD
    )
