"""Drop months that are old as a whole, or empty, at once instead of row by row; PostgreSQL alone has them."""

from __future__ import annotations

import logging
import time

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError, ProgrammingError

from app.core.database import is_sqlite, writing
from app.core.partitions import (
    DROPPED_AFTER,
    DROPPED_AHEAD,
    MONTHLY,
    existing_months,
    lock_denied,
    month_begin,
    month_name,
)

# A drop waits for those who read the table, and others wait behind it: not for long, but it is tried again.
LOCK_TIMEOUT = "100ms"
MONTH_LOCK_TIMEOUT = "3s"  # for the month alone, behind which only late counts wait; PostgreSQL may be vacuuming it
TRIES = 20
PAUSE_SECONDS = 1.0

log = logging.getLogger("flowcast.prune")


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
    for left in reversed(range(TRIES)):
        try:
            with writing(engine, served=served) as session:
                return _drop(session.connection(), table, month, only_empty=only_empty)
        except OperationalError as problem:
            if not lock_denied(problem):
                raise
            log.info("a month is in use", extra={"table": table, "month": month_name(month), "tries_left": left})
            time.sleep(PAUSE_SECONDS if left else 0.0)
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
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{MONTH_LOCK_TIMEOUT}'")
    # From this statement on no row is written, so that the rows that are counted are those that are dropped.
    connection.exec_driver_sql(f"LOCK TABLE {name} IN SHARE MODE")
    if only_empty and not _is_empty(connection, table, month):
        return None
    rows = connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one()  # nosec B608 # a month's, of ours
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    # Detached first, it would need a lock on links to go.
    connection.exec_driver_sql(f"DROP TABLE {name}")
    return int(rows)
