"""Make, rotate and revoke keys, and make the first one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from app.core.database import is_sqlite, writing
from app.core.errors import Conflict, FieldError, NotFound, ProblemType
from app.keys.cache import PREFIX, hashed, key_id_in
from app.keys.queries import key_with_id, valid_admin_keys
from app.keys.tables import ALL_SCOPES, ApiKey, Scope
from app.settings import Settings, Switch

OVERLAP_HOURS = 24.0


class IssuedKey(NamedTuple):
    """A new key: the row that stays, and the key itself, which is shown once."""

    row: ApiKey
    key: str


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
        raise Conflict(ProblemType.KEY_REPLACED, f"replaces={replaced!r} is refused; that key was already {how}")
    _leave_an_admin(session, old, by.created_at, environment_key)
    old.replaced_by = by.key_id
    old.expires_at = until if old.expires_at is None else min(old.expires_at, until)


def _leave_an_admin(session: Session, row: ApiKey, now: datetime, environment_key: bool) -> None:
    if environment_key:
        return
    admins = {admin.key_id for admin in valid_admin_keys(session, now)}
    if admins == {row.key_id}:
        raise Conflict(
            ProblemType.LAST_ADMIN_KEY, f"key {row.key_id} is the last one with the scope admin; make another one first"
        )


def _key_or_404(session: Session, key_id: str, field: str) -> ApiKey:
    row = key_with_id(session, key_id)
    if row is None:
        raise NotFound(f"key {key_id!r} does not exist", [FieldError(field, key_id[:100], "must name a key")])
    return row


FIRST_KEY_LOCK = 5_121_403_660_915_210_427  # any number, the same in every process


class FirstKey(NamedTuple):
    """The first key, to be shown on a terminal, or its file; neither where an admin key exists already."""

    shown: str | None = None
    file: Path | None = None


def make_first_key(engine: Engine, settings: Settings, *, terminal: bool) -> FirstKey:
    """Make a key with every scope where no admin key exists; of several processes that start at once, one does."""
    if settings.auth is Switch.OFF or settings.admin_key is not None:
        return FirstKey()
    with writing(engine) as session:
        if not is_sqlite(engine):  # where writers do not wait for each other anyway
            session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": FIRST_KEY_LOCK})
        if valid_admin_keys(session, datetime.now(UTC)):
            return FirstKey()
        key = issue_key(session, name="first start", scopes=ALL_SCOPES).key
        if terminal:
            return FirstKey(shown=key)
        write_secret(settings.admin_key_file, key)  # before the commit: without the file no key is made
    return FirstKey(file=settings.admin_key_file.absolute())


def write_secret(file: Path, key: str) -> None:
    """Write a key into a file that its owner alone can read; an old key there is replaced, anything else is not."""
    if file.exists() and key_id_in(file.read_text(errors="replace").strip()) is None:
        raise FileExistsError(f"{file} exists and has no key; it will not be overwritten")
    write_private(file, key)


def write_private(file: Path, line: str) -> None:
    """Write a line into a file, in one step, that its owner alone can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(line + "\n")
    part.replace(file)
