"""``GET /v1/admin/audit``: every admin call."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.http.dependencies import ReadSession
from app.keys.audit import entries_before
from app.keys.authentication import AdminKey

router = APIRouter(prefix="/v1/admin", tags=["audit"])


class AuditOut(BaseModel):
    """One admin call."""

    model_config = ConfigDict(from_attributes=True)

    at: datetime
    key_id: str = Field(description="Who called")
    key_name: str
    method: str
    path: str
    status: int = Field(description="How it was answered")
    request_id: str = Field(description="As in the log")
    client: str = Field(description="The address it came from")


class AuditPage(BaseModel):
    """Admin calls, the newest first."""

    calls: list[AuditOut]
    next_cursor: str | None = Field(description="Give it back as `cursor` for the next page; null at the end")


@router.get("/audit", summary="Every admin call")
def get_audit(
    caller: AdminKey,
    session: ReadSession,
    key_id: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Only this key's calls")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,9}$")] = None,
) -> AuditPage:
    """List calls that needed the scope admin, the newest first; of refused ones ten a minute of each key."""
    found = entries_before(session, int(cursor) if cursor else None, limit + 1, key_id)
    shown = [AuditOut.model_validate(row) for row in found[:limit]]
    return AuditPage(calls=shown, next_cursor=str(found[limit - 1].id) if len(found) > limit else None)
