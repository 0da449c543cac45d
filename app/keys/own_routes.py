"""``GET /v1/key``: what the key of the call may do."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.http.dependencies import ReadSession
from app.keys.authentication import AnyKey
from app.keys.caller import Scope
from app.keys.queries import key_with_id

router = APIRouter(prefix="/v1/key", tags=["keys"])


class OwnKey(BaseModel):
    """The key of the call, without the key itself."""

    key_id: Annotated[
        str,
        Field(
            description="`environment` for `FLOWCAST_ADMIN_KEY`, `anonymous` where no key is needed",
            examples=["3f9c0a1b2d4e"],
        ),
    ]
    name: Annotated[str, Field(examples=["traffic control centre"])]
    scopes: Annotated[list[Scope], Field(description="What it may do; no scope implies another")]
    expires_at: Annotated[datetime | None, Field(description="When it ends; null for never")]


@router.get("", summary="The key of this call")
def get_key(caller: AnyKey, session: ReadSession) -> OwnKey:
    """Return what the key of the call may do; any key may ask."""
    row = key_with_id(session, caller.key_id)
    return OwnKey(
        key_id=caller.key_id,
        name=caller.name,
        scopes=[scope for scope in Scope if scope.value in caller.scopes],
        expires_at=row.expires_at if row else None,
    )
