"""Who calls, what they may do, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

from app.core.errors import Forbidden

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


# Entries of a request's ASGI scope.
CALLER = "flowcast.caller"
CHECKED_KEY = "flowcast.checked_key"  # the RequireKey that the caller has passed
ADMIN_CALL = "flowcast.admin_call"  # present where the audit records the call


class Scope(StrEnum):
    """What a key may be allowed to do; none of them implies another."""

    READ = "read"
    INGEST = "ingest"
    ADMIN = "admin"


ALL_SCOPES = frozenset(scope.value for scope in Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose key it is, and what it may do."""

    key_id: str
    name: str
    scopes: frozenset[str]
    bucket: Bucket | None = None  # None where there is no limit

    def may(self, scope: str) -> None:
        """Refuse a call whose scope the key has not."""
        if scope not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this call needs the scope {str(scope)!r}; key {self.key_id} has {held}")
