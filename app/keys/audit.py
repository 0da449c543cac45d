"""Record admin calls."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.database import writing
from app.keys.audit_tables import AuditEntry
from app.keys.caller import Caller

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
