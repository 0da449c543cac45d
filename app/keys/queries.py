"""Keys in the database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from app.keys.tables import ApiKey


def key_with_id(session: Session, key_id: str) -> ApiKey | None:
    """One key, if there is such."""
    return session.get(ApiKey, key_id)


def all_keys(session: Session) -> list[ApiKey]:
    """Every key that was ever made, the newest first."""
    return list(session.scalars(select(ApiKey).order_by(ApiKey.created_at.desc(), ApiKey.key_id)))


def valid_admin_keys(session: Session, now: datetime) -> list[ApiKey]:
    """Return the keys with the scope admin that are valid now, locked, so that two calls cannot revoke the last two."""
    valid = and_(ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now))
    found = session.scalars(select(ApiKey).where(valid, ApiKey.scopes.contains("admin")).with_for_update())
    return [row for row in found if "admin" in row.scopes.split(",")]


def save_last_use(session: Session, used: Mapping[str, datetime]) -> None:
    """Note when keys were last used; never back in time, for other processes note it too."""
    for key_id, at in used.items():
        older = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at)
        session.execute(update(ApiKey).where(ApiKey.key_id == key_id, older).values(last_used_at=at))
