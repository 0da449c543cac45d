"""How often somebody may ask: token buckets."""

from __future__ import annotations

from time import monotonic

MOST_BUCKETS = 10_000


class Bucket:
    """Tokens that refill over a minute; every request takes one."""

    __slots__ = ("_at", "_most", "_tokens")

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._tokens = float(per_minute)
        self._at = monotonic()

    def take(self) -> float:
        """Take a token; the seconds to wait where there is none, 0 where there was."""
        self._refill()
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * 60 / self._most

    def wait(self) -> float:
        """Return the seconds until there is a token, without taking it."""
        self._refill()
        return max(0.0, 1 - self._tokens) * 60 / self._most

    def _refill(self) -> None:
        now = monotonic()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._most / 60)
        self._at = now


class Buckets:
    """One bucket for each name; past a bound the oldest is forgotten, so that names cannot fill the memory."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: dict[str, Bucket] = {}

    def of(self, name: str) -> Bucket:
        """Return the bucket of a name."""
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= MOST_BUCKETS:
                self._buckets.pop(next(iter(self._buckets)), None)
            bucket = self._buckets.setdefault(name, Bucket(self._per_minute))
        return bucket
