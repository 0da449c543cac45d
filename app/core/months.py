"""Calendar months in UTC, numbered from January 1970: the parts in which PostgreSQL keeps counts and forecasts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np

FIRST_YEAR = 1970


def month_of(second: int) -> int:
    """Give the month of a Unix second."""
    moment = datetime.fromtimestamp(second, UTC)
    return 12 * (moment.year - FIRST_YEAR) + moment.month - 1


def months_of(seconds: Iterable[int]) -> set[int]:
    """Give the months of Unix seconds."""
    whole = np.fromiter(seconds, dtype=np.int64)
    return set(np.unique(whole.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)).tolist())


def month_begin(month: int) -> int:
    """Give the Unix second at which a month begins."""
    return int(datetime(FIRST_YEAR + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp())


def month_name(month: int) -> str:
    """Write a month as a table's name ends with it."""
    return f"{FIRST_YEAR + month // 12}_{month % 12 + 1:02}"


def month_named(name: str) -> int:
    """Read the month that a table's name ends with."""
    year, month = name.rsplit("_", 2)[1:]
    return 12 * (int(year) - FIRST_YEAR) + int(month) - 1
