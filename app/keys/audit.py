"""Record admin calls."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.core.database import writing
from app.keys.caller import Caller
from app.keys.tables import AuditEntry


def entries_before(session: Session, cursor: int | None, limit: int, key_id: str | None = None) -> list[AuditEntry]:
    """Return admin calls, the newest first."""
    question = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    if cursor is not None:
        question = question.where(AuditEntry.id < cursor)
    if key_id is not None:
        question = question.where(AuditEntry.key_id == key_id)
    return list(session.scalars(question))


log = logging.getLogger("flowcast.audit")

REFUSED_A_MINUTE = 10  # of one key, in one process; more are counted and not stored


def record_call(
    engine: Engine, caller: Caller, *, method: str, path: str, status: int, request_id: str, client: str
) -> None:
    """Store one call; where that cannot be, the log keeps it."""
    asked = {"method": method[:8], "path": path[:1000], "client": client[:64]}  # of any length, but for columns
    facts = asked | {"status": status, "request_id": request_id}
    try:
        with writing(engine, served=False) as session:
            session.add(AuditEntry(at=datetime.now(UTC), key_id=caller.key_id, key_name=caller.name, **facts))
    except SQLAlchemyError:
        log.exception("an admin call is not in the audit", extra={"key_id": caller.key_id, **facts})
