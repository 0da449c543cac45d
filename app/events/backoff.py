"""How long to wait before an address is tried again, and when to give up on it."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import accumulate, count

LONGEST_WAIT = 3600  # seconds
GIVE_UP_SECONDS = 3 * 86_400
JITTER = 0.25  # those who failed together do not come back together


def wait_seconds(failures: int) -> int:
    """Return the least wait after so many failures in a row: a second, doubling to an hour."""
    return min(LONGEST_WAIT, 1 << min(failures - 1, 12))


def wait_after(failures: int) -> timedelta:
    """Return a wait, up to a quarter longer than the least."""
    return timedelta(seconds=wait_seconds(failures) * random.uniform(1.0, 1.0 + JITTER))  # nosec B311 # no secret


def _most_failures() -> int:
    waited = accumulate(wait_seconds(n) for n in count(1))
    return next(n for n, seconds in enumerate(waited, start=1) if seconds >= GIVE_UP_SECONDS) + 1


MOST_FAILURES = _most_failures()  # in a row, and three days have passed since the first
