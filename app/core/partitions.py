"""The months of counts and forecasts on PostgreSQL: a table each, made before rows are written, dropped when it is old.

There is no default partition: every query that does not name its slots would search it, and making a month would scan
it under a lock. So writers ensure the months first. Months are numbered from January 1970.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from weakref import WeakKeyDictionary

import numpy as np
from sqlalchemy import Connection, Engine, NullPool, Pool, create_engine, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from app.core.database import is_sqlite, writing
from app.core.errors import Invalid

MONTHLY = ("counts", "forecasts")
# A month is dropped two days after its end at the earliest. Until a day after its end it is trusted to exist.
DROPPED_AFTER = 2 * 86_400
TRUSTED_AFTER = 86_400
# The same for months to come: a worker makes two ahead.
TRUSTED_AHEAD = 70 * 86_400
DROPPED_AHEAD = 100 * 86_400
TRUSTED_SECONDS = 60.0  # in which a DROP TABLE by hand is not noticed
MAKE_LOCK_TIMEOUT = "2s"  # the longest that others wait while a month is made
MAKE_TRIES = 15
# A drop waits for readers of the table, and others wait behind it. So it waits only shortly, and is tried again.
DROP_LOCK_TIMEOUT = "100ms"
# For the month alone, behind which only late counts wait; PostgreSQL may be vacuuming it.
DROP_MONTH_LOCK_TIMEOUT = "3s"
DROP_TRIES = 20
DROP_PAUSE_SECONDS = 1.0

log = logging.getLogger("flowcast.partitions")

_seen: WeakKeyDictionary[Pool, dict[tuple[str, int], float]] = WeakKeyDictionary()  # table and month, and when
_making = threading.Lock()

_EXISTING = text("""
    SELECT month.relname FROM pg_inherits JOIN pg_class AS month ON month.oid = inhrelid
    WHERE inhparent = CAST(:table AS regclass) AND NOT inhdetachpending
""")
# Making a month locks links against other writers of links, and the table against other makers of months.
_HOLDS_LOCKS = text("""
    SELECT EXISTS (
        SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND granted AND (
            relation = CAST('links' AS regclass) AND mode NOT IN ('AccessShareLock', 'RowShareLock')
            OR relation = CAST(:table AS regclass)
            AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
        )
    )
""")


def month_of(second: int) -> int:
    """Return the month of a Unix second."""
    return int(np.datetime64(second, "s").astype("datetime64[M]").astype(int))


def months_of(seconds: Iterable[int]) -> set[int]:
    """Return the months of Unix seconds."""
    whole = np.fromiter(seconds, dtype=np.int64)
    return set(np.unique(whole.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)).tolist())


def month_begin(month: int) -> int:
    """Return the Unix second at which a month begins."""
    return int(np.datetime64(month, "M").astype("datetime64[s]").astype(int))


def month_name(month: int) -> str:
    """Return a month as a table's name ends with it."""
    return str(np.datetime64(month, "M")).replace("-", "_")


def month_named(name: str) -> int:
    """Return the month that a table's name ends with."""
    year, month = name.rsplit("_", 2)[1:]
    return int(np.datetime64(f"{year}-{month}", "M").astype(int))


def ensure_months(
    session: Session, table: str, slots: Iterable[int], *, wait: bool = True, most: int | None = None
) -> None:
    """Make the months of slots that do not exist yet, and keep all of them until this transaction is over.

    A missing month is made in a transaction of its own, so that all others see it at once, and it stays if this
    one is rolled back. Call this before rows of links are locked: making a month waits for those who write links,
    and these may wait for the rows. Without ``wait`` a month that cannot be made at once
    raises an ``OperationalError`` for which ``lock_denied`` is true. More than ``most`` missing months raise
    ``Invalid``, and none is made.
    """
    if is_sqlite(session):
        return
    connection = session.connection()
    wanted = months_of(slots)
    seen = _seen.setdefault(connection.engine.pool, {})
    # A transaction that has written to a table sees the months that existed then, until it locks a new one.
    first_time = session.info.setdefault((ensure_months, table), True)
    session.info[ensure_months, table] = False
    if first_time and all(_is_trusted(seen.get((table, month)), month) for month in wanted):
        return
    connection.exec_driver_sql(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE")  # no month is dropped while it is held
    missing = wanted - existing_months(connection, table)
    names = ", ".join(f"{table}_{month_name(month)}" for month in sorted(wanted))
    if most is not None and len(missing) > most:
        raise _too_many(missing, most)
    if missing and connection.execute(_HOLDS_LOCKS, {"table": table}).scalar_one():
        make_months(connection, table, missing)  # here, because another transaction would wait for this one for ever
        wanted -= missing  # not trusted later: a rollback removes them
    elif missing:
        _make_in_own_transaction(connection, table, missing, wait=wait)
    if names:
        connection.exec_driver_sql(f"LOCK TABLE {names} IN ROW EXCLUSIVE MODE")
    seen.update(dict.fromkeys(((table, month) for month in wanted), time.monotonic()))


def existing_months(connection: Connection, table: str) -> set[int]:
    """Return the months that a table has."""
    return {month_named(name) for name in connection.execute(_EXISTING, {"table": table}).scalars()}


def make_months(connection: Connection, table: str, months: set[int], *, wait: bool = True) -> None:
    """Make months, in one transaction at a time; reads and writes of counts go on meanwhile."""
    # The mode that the foreign key will need.
    connection.exec_driver_sql(f"LOCK TABLE links IN SHARE ROW EXCLUSIVE MODE{'' if wait else ' NOWAIT'}")
    for month in sorted(months - existing_months(connection, table)):
        name = f"{table}_{month_name(month)}"
        # CREATE TABLE ... PARTITION OF would lock the whole table against readers.
        connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ATTACH PARTITION {name} "
            f"FOR VALUES FROM ({month_begin(month)}) TO ({month_begin(month + 1)})"
        )


def lock_denied(problem: OperationalError) -> bool:
    """Return whether a statement failed only because another transaction held a lock."""
    return getattr(problem.orig, "sqlstate", None) in ("55P03", "40P01")


def _too_many(missing: set[int], most: int) -> Invalid:
    first, last = (month_name(month).replace("_", "-") for month in (min(missing), max(missing)))
    value = f"{len(missing)} months that have no counts yet, {first} to {last}"
    return Invalid.field(
        "slot_start", value, f"must begin at most {most} new months at once; send fewer years at a time"
    )


def _make_in_own_transaction(connection: Connection, table: str, months: set[int], *, wait: bool) -> None:
    # Not from the pool, because all its connections may be waiting for the same month.
    engine = create_engine(connection.engine.url, poolclass=NullPool)
    with _making if wait else nullcontext():
        for left in reversed(range(MAKE_TRIES if wait else 1)):
            try:
                with engine.begin() as own:
                    own.exec_driver_sql(f"SET LOCAL lock_timeout = '{MAKE_LOCK_TIMEOUT}'")
                    make_months(own, table, months, wait=wait)
                return
            except OperationalError as problem:
                if not left or not lock_denied(problem):  # else another transaction writes links, and will end
                    raise


def _is_trusted(seen_at: float | None, month: int) -> bool:
    """Return whether a month that was seen is taken to exist still."""
    return (
        seen_at is not None
        and time.monotonic() - seen_at < TRUSTED_SECONDS
        and month_begin(month + 1) > time.time() - TRUSTED_AFTER
        and month_begin(month) < time.time() + TRUSTED_AHEAD
    )


def old_months(engine: Engine, table: str, before: int) -> list[int]:
    """Return the months of a table that ended before a Unix second, the oldest first."""
    if is_sqlite(engine) or table not in MONTHLY:
        return []
    end = min(before, int(time.time()) - DROPPED_AFTER)  # others may rely on a later one
    with engine.connect() as connection:
        return sorted(month for month in existing_months(connection, table) if month_begin(month + 1) <= end)


def empty_months(engine: Engine) -> list[tuple[str, int]]:
    """Return the tables and months without rows, except this month and those around it."""
    if is_sqlite(engine):
        return []
    now, found = int(time.time()), []
    with engine.connect() as connection:
        for table in MONTHLY:
            for month in sorted(existing_months(connection, table)):
                over = month_begin(month + 1) <= now - DROPPED_AFTER
                if (over or month_begin(month) >= now + DROPPED_AHEAD) and _is_empty(connection, table, month):
                    found.append((table, month))
                connection.rollback()  # or all months would be locked at the end
    return found


def drop_month(engine: Engine, table: str, month: int, *, served: bool, only_empty: bool = False) -> int | None:
    """Drop a month; return how many rows went with it.

    None if others held locks on it all the time, or if the month has rows and may only be dropped without any.
    """
    for left in reversed(range(DROP_TRIES)):
        try:
            with writing(engine, served=served) as session:
                return _drop(session.connection(), table, month, only_empty=only_empty)
        except OperationalError as problem:
            if not lock_denied(problem):
                raise
            log.info(
                "a month is in use and not dropped yet",
                extra={"table": table, "month": month_name(month), "tries_left": left},
            )
            time.sleep(DROP_PAUSE_SECONDS if left else 0.0)
    return None


def _is_empty(connection: Connection, table: str, month: int) -> bool:
    name = f"{table}_{month_name(month)}"
    query = f"SELECT NOT EXISTS (SELECT FROM {name})"  # nosec B608 # a month's, of ours
    try:
        return bool(connection.exec_driver_sql(query).scalar_one())
    except ProgrammingError:  # another process dropped it meanwhile
        return False


def _drop(connection: Connection, table: str, month: int, *, only_empty: bool) -> int | None:
    name = f"{table}_{month_name(month)}"
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{DROP_MONTH_LOCK_TIMEOUT}'")
    # Locked against writers, so that the counted rows are those that are dropped.
    connection.exec_driver_sql(f"LOCK TABLE {name} IN SHARE MODE")
    if only_empty and not _is_empty(connection, table, month):
        return None
    rows = connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one()  # nosec B608 # a month's, of ours
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{DROP_LOCK_TIMEOUT}'")
    # Detached first, it would need a lock on links to go.
    connection.exec_driver_sql(f"DROP TABLE {name}")
    return int(rows)
