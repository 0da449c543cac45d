"""The keys a process knows: in memory for a minute, for some more while the database is unreachable, there for good."""

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
from sqlalchemy.orm import Session

from app.core.database import UNREACHABLE, reading
from app.core.errors import TooMany, Unauthorized
from app.keys.caller import ALL_SCOPES, Buckets, Caller
from app.keys.issue import key_id_in
from app.keys.queries import key_with_id, save_last_use
from app.settings import Settings, Switch

__all__ = ["ApiKeyCache", "Caller"]

MOST_AGE = 60.0  # seconds; a revoked key may live on for so long in another process
MOST_UNCHECKED = 600.0  # seconds; the same where the database is unreachable and cannot be asked
MOST_KNOWN = 10_000
FAILURES_A_MINUTE = 60  # wrong keys from one address, past which its keys are looked up one at a time
LOOK_UPS_AT_ONCE = 4  # in threads of their own: strangers take none from requests
CHALLENGE = {"WWW-Authenticate": 'ApiKey header="X-API-Key", Bearer'}


@dataclass(slots=True)
class _Known:
    caller: Caller
    checked: float
    until: float  # after which the database is asked again
    ends: float  # when the key expires
    seen: float  # when it was last sent


class ApiKeyCache:
    """Tells who calls from the key they send."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._open = settings.auth is Switch.OFF
        self._limits = Buckets(settings.rate_limit) if settings.rate_limit else None
        self._failures = Buckets(min(FAILURES_A_MINUTE, settings.rate_limit)) if settings.rate_limit else None
        self._turns, self._suspect_turns = CapacityLimiter(LOOK_UPS_AT_ONCE), CapacityLimiter(1)
        self._known: dict[bytes, _Known] = {}
        self._changes = 0
        self._used: dict[str, datetime] = {}
        self._anonymous = self._caller("anonymous", "no key needed", ALL_SCOPES)
        self._environment = self._caller("environment", "FLOWCAST_ADMIN_KEY", ALL_SCOPES)
        self._environment_digest = _digest(settings.admin_key.get_secret_value()) if settings.admin_key else None

    @property
    def has_environment_key(self) -> bool:
        """Return whether a key with every scope came with the settings."""
        return self._environment_digest is not None

    def known(self, key: str | None) -> Caller | None:
        """Return the caller from memory; None where the database must be asked."""
        if self._open:
            return self._anonymous
        if not key:
            return None
        # What is looked up is a hash, so the time it takes tells nothing about any key.
        digest = _digest(key)
        found = self._known.get(digest)
        if found is not None:
            now = monotonic()
            if found.until <= now:
                return None
            found.seen = now
            return found.caller
        if self._environment_digest is not None and compare_digest(digest, self._environment_digest):
            return self._environment
        return None

    async def look_up(self, key: str | None, *, suspect: bool = False) -> Caller:
        """Return who calls, from the database, or refuse; suspects are looked up one at a time."""
        if (caller := self.known(key)) is not None:
            return caller
        if not key:
            raise Unauthorized(
                "a key is missing; send it in the header X-API-Key, or as Authorization: Bearer", headers=CHALLENGE
            )
        key_id = key_id_in(key)
        try:
            turns = self._suspect_turns if suspect else self._turns
            caller = None if key_id is None else await run_sync(self._ask, key_id, key, limiter=turns)
        except UNREACHABLE:
            if (caller := self._remembered(key)) is None:
                raise
        if caller is None:
            self._known.pop(_digest(key), None)
            raise Unauthorized("the key is unknown, expired or revoked", headers=CHALLENGE)
        return caller

    async def identify(self, key: str | None, client: str) -> Caller:
        """Return the caller and count the call, or refuse a wrong key, too many guesses or too many calls."""
        caller = self.known(key)
        if caller is None:
            caller = await self._unless_guessing(key, client)
        if caller.bucket is not None and (wait := caller.bucket.take()):
            raise _too_many(f"key {caller.key_id} has sent more requests than it may in a minute", wait)
        return caller

    def forget(self, key_id: str) -> None:
        """Ask the database again about a key, which was changed."""
        self._changes += 1
        for digest, known in list(self._known.items()):
            if known.caller.key_id == key_id:
                self._known.pop(digest, None)

    def save_last_use(self) -> None:
        """Store when keys were last used, off the request path."""
        if self._used:
            used, self._used = self._used, {}
            # Not through ``writing``: no process that serves from memory needs a notification of this.
            with Session(self._engine.execution_options(writes=True)) as session, session.begin():
                save_last_use(session, used)

    @property
    def has_news(self) -> bool:
        """Return whether there is a last use to save."""
        return bool(self._used)

    async def _unless_guessing(self, key: str | None, client: str) -> Caller:
        # Wrong keys are counted after the look-up, and only they are refused: others may share their address.
        bucket = None if self._failures is None or not key else self._failures.of(client)
        try:
            # A key that was good a minute ago is no guess.
            suspect = bucket is not None and bucket.wait() > 0 and _digest(key or "") not in self._known
            return await self.look_up(key, suspect=suspect)
        except Unauthorized:
            if bucket is not None and (wait := bucket.take()):
                raise _too_many(f"too many wrong keys came from {client}", wait) from None
            raise

    def _ask(self, key_id: str, key: str) -> Caller | None:
        changes, now, digest = self._changes, datetime.now(UTC), _digest(key)
        with reading(self._engine) as session:
            row = key_with_id(session, key_id)
        if row is None or not compare_digest(row.hash, digest.hex()) or row.revoked_at is not None:
            return None
        left = math.inf if row.expires_at is None else (row.expires_at - now).total_seconds()
        if left <= 0:
            return None
        caller = self._caller(row.key_id, row.name, frozenset(row.scopes.split(",")))
        self._used[key_id] = now  # once in the life of a known key, so at most once a minute
        if changes == self._changes:  # else it may have been revoked while we read
            while len(self._known) >= MOST_KNOWN:
                self._known.pop(next(iter(self._known)), None)
            at = monotonic()
            self._known[digest] = _Known(caller, at, at + min(MOST_AGE, left), at + left, at)
        return caller

    def _remembered(self, key: str) -> Caller | None:
        """Return the caller while the database is unreachable: of a key that was sent and checked recently."""
        found, now = self._known.get(_digest(key)), monotonic()
        if found is None or now > found.seen + MOST_AGE or now > min(found.ends, found.checked + MOST_UNCHECKED):
            return None
        found.seen = now
        return found.caller

    def _caller(self, key_id: str, name: str, scopes: frozenset[str]) -> Caller:
        return Caller(key_id, name, scopes, None if self._limits is None else self._limits.of(key_id))


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def _too_many(detail: str, wait: float) -> TooMany:
    seconds = math.ceil(wait)
    return TooMany(f"{detail}; try again in {seconds} s", headers={"Retry-After": str(seconds)})
