"""The audit log in the database."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.keys.audit_tables import AuditEntry


def entries_before(session: Session, cursor: int | None, limit: int, key_id: str | None = None) -> list[AuditEntry]:
    """Give admin calls, the newest first."""
    question = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    if cursor is not None:
        question = question.where(AuditEntry.id < cursor)
    if key_id is not None:
        question = question.where(AuditEntry.key_id == key_id)
    return list(session.scalars(question))
