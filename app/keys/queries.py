"""Keys, and the audit of admin calls, in the database."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Engine, and_, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.core.database import writing
from app.keys.tables import ApiKey, AuditEntry

log = logging.getLogger("flowcast.audit")


def key_with_id(session: Session, key_id: str) -> ApiKey | None:
    """Return a key, if it exists."""
    return session.get(ApiKey, key_id)


def all_keys(session: Session) -> list[ApiKey]:
    """Return every key that was ever made, the newest first."""
    return list(session.scalars(select(ApiKey).order_by(ApiKey.created_at.desc(), ApiKey.key_id)))


def valid_admin_keys(session: Session, now: datetime) -> list[ApiKey]:
    """Return the keys with the scope admin that are valid now, locked, so that two calls cannot revoke the last two."""
    valid = and_(ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now))
    found = session.scalars(select(ApiKey).where(valid, ApiKey.scopes.contains("admin")).with_for_update())
    return [row for row in found if "admin" in row.scopes.split(",")]


def save_last_use(session: Session, used: Mapping[str, datetime]) -> None:
    """Store when keys were last used; never back in time, because other processes store it too."""
    for key_id, at in used.items():
        older = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at)
        session.execute(update(ApiKey).where(ApiKey.key_id == key_id, older).values(last_used_at=at))


def calls_before(session: Session, cursor: int | None, limit: int, key_id: str | None = None) -> list[AuditEntry]:
    """Return admin calls before one, the newest first."""
    query = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    if cursor is not None:
        query = query.where(AuditEntry.id < cursor)
    if key_id is not None:
        query = query.where(AuditEntry.key_id == key_id)
    return list(session.scalars(query))


def record_call(engine: Engine, **facts: str | int) -> None:
    """Store an admin call; if that fails, the log keeps it."""
    try:
        with writing(engine, served=False) as session:
            session.add(AuditEntry(at=datetime.now(UTC), **facts))
    except SQLAlchemyError:
        log.exception("an admin call is not in the audit", extra=facts)
