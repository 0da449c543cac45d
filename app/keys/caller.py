"""Who calls, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.core.errors import Forbidden
from app.keys.limits import Bucket

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
