"""A cache of API keys, with the scopes of each and a limit on its requests.

A key is kept for a minute, and for up to ten while the database is unreachable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from time import monotonic

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import Engine

from app.core.database import UNREACHABLE, Change, reading, record_change, writing
from app.core.errors import Forbidden, TooManyRequests, Unauthorized
from app.keys.queries import key_with_id, save_last_use
from app.keys.tables import ALL_SCOPES
from app.settings import Settings, Switch

MOST_AGE = 60.0  # seconds; a revoked key may stay valid for so long in another process
MOST_UNCHECKED = 600.0  # seconds; the same while the database is unreachable
MOST_KEYS = 10_000
MOST_BUCKETS = 10_000
FAILURES_A_MINUTE = 60  # wrong keys from one address, past which its keys are looked up one at a time
LOOK_UPS_AT_ONCE = 4  # in threads of their own: wrong keys take none from requests
PREFIX = "fc"  # of a key: fc_KEYID_SECRET
CHALLENGE = {"WWW-Authenticate": 'ApiKey header="X-API-Key", Bearer'}


def hashed(key: str) -> str:
    """Return the hash of a key, which is stored in its place."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_id_in(key: str) -> str | None:
    """Return the id in a key; None where the text cannot be a key."""
    parts = key.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX and parts[1].isalnum() and parts[1].isascii() else None


class RateLimiter:
    """Limits the calls per minute of each name by a token bucket.

    Past a bound the oldest name is dropped, so that names cannot fill the memory.
    """

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute  # 0 for no limit
        self._tokens: dict[str, tuple[float, float]] = {}  # and when there were so many

    def wait(self, name: str) -> float:
        """Return the seconds until a name has a token."""
        return max(0.0, 1 - self._refilled(name, monotonic())) * 60 / self._most if self._most else 0.0

    def take(self, name: str) -> float:
        """Take a token of a name; return the seconds to wait where there is none, 0 where there was."""
        if not self._most:
            return 0.0
        now = monotonic()
        tokens = self._refilled(name, now)
        if tokens < 1:
            return (1 - tokens) * 60 / self._most
        if name not in self._tokens and len(self._tokens) >= MOST_BUCKETS:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[name] = tokens - 1, now
        return 0.0

    def _refilled(self, name: str, now: float) -> float:
        tokens, at = self._tokens.get(name, (self._most, now))
        return min(self._most, tokens + (now - at) * self._most / 60)


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a key, and its scopes."""

    key_id: str
    name: str
    scopes: frozenset[str]

    def require_scope(self, scope: str) -> None:
        """Raise ``Forbidden`` if the key does not have a scope."""
        if scope not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this call needs the scope {str(scope)!r}; key {self.key_id} has {held}")


ANONYMOUS = Caller("anonymous", "no key needed", ALL_SCOPES)
ENVIRONMENT = Caller("environment", "FLOWCAST_ADMIN_KEY", ALL_SCOPES)


@dataclass(slots=True)
class _CachedKey:
    caller: Caller
    checked: float  # when it was read from the database
    expires: float
    sent: float  # when it was last sent


class ApiKeyCache:
    """Identifies the caller of a request by its key, and limits the requests of each key."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._is_open = settings.auth is Switch.OFF
        self._calls = RateLimiter(settings.rate_limit)
        self._failures = RateLimiter(min(FAILURES_A_MINUTE, settings.rate_limit))
        self._turns, self._suspect_turns = CapacityLimiter(LOOK_UPS_AT_ONCE), CapacityLimiter(1)
        self._cached: dict[str, _CachedKey] = {}  # by hash: the time that a look-up takes shows nothing of any key
        self._changes = 0
        self._used: dict[str, datetime] = {}
        self._environment_hash = hashed(settings.admin_key.get_secret_value()) if settings.admin_key else ""

    @property
    def has_environment_key(self) -> bool:
        """Return whether the settings have a key with every scope."""
        return bool(self._environment_hash)

    def cached(self, key: str | None) -> Caller | None:
        """Return the caller from memory; None where the database must be read."""
        if self._is_open:
            return ANONYMOUS
        if not key:
            return None
        key_hash = hashed(key)
        if (found := self._cached.get(key_hash)) is not None:
            now = monotonic()
            if now >= min(found.checked + MOST_AGE, found.expires):
                return None
            found.sent = now
            return found.caller
        return ENVIRONMENT if compare_digest(key_hash, self._environment_hash) else None

    async def identify(self, key: str | None, client: str) -> Caller:
        """Return the caller and count the call, or refuse a wrong key, too many guesses or too many calls."""
        caller = self.cached(key) or await self._look_up(key, client)
        if wait := self._calls.take(caller.key_id):
            raise _too_many(f"key {caller.key_id} has sent more requests than it may in a minute", wait)
        return caller

    def forget(self, key_id: str) -> None:
        """Read a key, which was changed, from the database at its next use."""
        self._changes += 1
        for key_hash, found in list(self._cached.items()):
            if found.caller.key_id == key_id:
                self._cached.pop(key_hash, None)

    def save_last_use(self) -> None:
        """Store when keys were last used, off the request path."""
        if self._used:
            used, self._used = self._used, {}
            with writing(self._engine) as session:
                record_change(session, Change.NOTHING)
                save_last_use(session, used)

    async def _look_up(self, key: str | None, client: str) -> Caller:
        if not key:
            raise Unauthorized(
                "a key is missing; send it in the header X-API-Key, or as Authorization: Bearer", headers=CHALLENGE
            )
        key_hash, key_id = hashed(key), key_id_in(key)
        # A key that was valid a minute ago is not a guess.
        suspect = self._failures.wait(client) > 0 and key_hash not in self._cached
        turns = self._suspect_turns if suspect else self._turns
        try:
            caller = None if key_id is None else await run_sync(self._read, key_id, key_hash, limiter=turns)
        except UNREACHABLE:
            if (caller := self._recently_checked(key_hash)) is None:
                raise
        if caller is not None:
            return caller
        self._cached.pop(key_hash, None)
        # Wrong keys are counted after the look-up, and only they are refused: others may share their address.
        if wait := self._failures.take(client):
            raise _too_many(f"too many wrong keys came from {client}", wait)
        raise Unauthorized("the key is unknown, expired or revoked", headers=CHALLENGE)

    def _read(self, key_id: str, key_hash: str) -> Caller | None:
        changes, now = self._changes, datetime.now(UTC)
        with reading(self._engine) as session:
            row = key_with_id(session, key_id)
        if row is None or not compare_digest(row.hash, key_hash) or row.revoked_at is not None:
            return None
        left = math.inf if row.expires_at is None else (row.expires_at - now).total_seconds()
        if left <= 0:
            return None
        caller = Caller(row.key_id, row.name, frozenset(row.scopes.split(",")))
        self._used[key_id] = now  # once in the life of a cached key, so at most once a minute
        if changes == self._changes:  # else it may have been revoked since it was read
            while len(self._cached) >= MOST_KEYS:
                self._cached.pop(next(iter(self._cached)), None)
            at = monotonic()
            self._cached[key_hash] = _CachedKey(caller, at, at + left, at)
        return caller

    def _recently_checked(self, key_hash: str) -> Caller | None:
        """Return the caller while the database is unreachable: of a key that was sent and checked recently."""
        found, now = self._cached.get(key_hash), monotonic()
        if found is None or now > min(found.sent + MOST_AGE, found.checked + MOST_UNCHECKED, found.expires):
            return None
        found.sent = now
        return found.caller


def _too_many(detail: str, wait: float) -> TooManyRequests:
    seconds = math.ceil(wait)
    return TooManyRequests(f"{detail}; try again in {seconds} s", headers={"Retry-After": str(seconds)})
