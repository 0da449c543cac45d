"""Make, rotate and revoke keys."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.core.errors import FieldError, NotFound, NotYet
from app.keys.caller import Scope
from app.keys.queries import key_with_id, valid_admin_keys
from app.keys.tables import ApiKey

PREFIX = "fc"
OVERLAP_HOURS = 24.0


class IssuedKey(NamedTuple):
    """A new key: the row that stays, and the key itself, which is shown once."""

    row: ApiKey
    key: str


def hashed(key: str) -> str:
    """Return what is stored of a key."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_id_in(key: str) -> str | None:
    """Read the id that a key carries; None where it cannot be one of ours."""
    parts = key.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX and parts[1].isalnum() and parts[1].isascii() else None


def issue_key(
    session: Session,
    *,
    name: str,
    scopes: Collection[str],
    expires_in_days: int | None = None,
    replaces: str | None = None,
    overlap_hours: float = OVERLAP_HOURS,
    environment_key: bool = False,
) -> IssuedKey:
    """Make a key; one that it replaces stays valid for the overlap and no longer."""
    now = datetime.now(UTC)
    key_id = secrets.token_hex(6)
    key = f"{PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
    row = ApiKey(
        key_id=key_id,
        name=name,
        hash=hashed(key),
        scopes=",".join(scope for scope in Scope if scope in scopes),
        created_at=now,
        expires_at=None if expires_in_days is None else now + timedelta(days=expires_in_days),
    )
    session.add(row)
    session.flush()
    if replaces is not None:
        _replace(session, replaces, row, now + timedelta(hours=overlap_hours), environment_key)
    return IssuedKey(row, key)


def revoke_key(session: Session, key_id: str, *, environment_key: bool = False) -> None:
    """Make a key invalid from now on; one that is invalid already stays as it is."""
    row = _key_or_404(session, key_id, "key_id")
    if row.revoked_at is None:
        now = datetime.now(UTC)
        _leave_an_admin(session, row, now, environment_key)
        row.revoked_at = now


def _replace(session: Session, replaced: str, by: ApiKey, until: datetime, environment_key: bool) -> None:
    old = _key_or_404(session, replaced, "replaces")
    if old.revoked_at is not None or old.replaced_by is not None:
        how = "revoked" if old.revoked_at is not None else f"replaced by {old.replaced_by}"
        raise NotYet(f"replaces={replaced!r} is refused; that key was already {how}")
    _leave_an_admin(session, old, by.created_at, environment_key)
    old.replaced_by = by.key_id
    old.expires_at = until if old.expires_at is None else min(old.expires_at, until)


def _leave_an_admin(session: Session, row: ApiKey, now: datetime, environment_key: bool) -> None:
    if environment_key:
        return
    admins = {admin.key_id for admin in valid_admin_keys(session, now)}
    if admins == {row.key_id}:
        raise NotYet(f"key {row.key_id} is the last one with the scope admin; make another one first")


def _key_or_404(session: Session, key_id: str, field: str) -> ApiKey:
    row = key_with_id(session, key_id)
    if row is None:
        raise NotFound(f"key {key_id!r} does not exist", [FieldError(field, key_id[:100], "must name a key")])
    return row
