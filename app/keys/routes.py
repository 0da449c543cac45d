"""Keys over REST: for admins, the key of a call, and the audit of admin calls."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.core.errors import CURSOR_RULE, ProblemType, worded
from app.http.dependencies import ReadSession, WriteSession
from app.http.problems import problem_responses
from app.keys.authentication import AdminKey, AnyKey, ApiKeysDep
from app.keys.cache import ApiKeyCache
from app.keys.issue import issue_key, revoke_key
from app.keys.queries import all_keys, calls_before, key_with_id
from app.keys.schemas import AuditOut, AuditPage, IssuedKeyOut, KeyList, KeyOut, KeyPath, NewKey, OwnKey
from app.keys.tables import Scope

CALLER_ID = worded(r"^[A-Za-z0-9_-]{1,64}$", "must be 1 to 64 letters, digits, underscores or dashes")

router = APIRouter(prefix="/v1/admin/keys", tags=["keys"])
own_router = APIRouter(prefix="/v1/key", tags=["keys"])
audit_router = APIRouter(prefix="/v1/admin", tags=["audit"])


@router.post(
    "",
    status_code=201,
    summary="Create a key",
    responses=problem_responses(ProblemType.NOT_FOUND, ProblemType.KEY_REPLACED, ProblemType.LAST_ADMIN_KEY),
)
def create_key(body: NewKey, _caller: AdminKey, session: WriteSession, keys: ApiKeysDep) -> IssuedKeyOut:
    """Create a key; the answer has it, and it is shown only once.

    With `replaces` the other key stays valid for `overlap_hours`, so that its users can change to the new one.
    """
    issued = issue_key(session, **dict(body), environment_key=keys.has_environment_key)
    if body.replaces is not None:
        _forget_afterwards(session, keys, body.replaces)
    return IssuedKeyOut.of(issued.row, key=issued.key)


@router.get("", summary="All keys")
def list_keys(_caller: AdminKey, session: ReadSession) -> KeyList:
    """List every key, revoked ones too; never the key itself or its hash."""
    return KeyList(keys=[KeyOut.of(row) for row in all_keys(session)])


@router.delete(
    "/{key_id}", status_code=204, summary="Revoke a key", responses=problem_responses(ProblemType.LAST_ADMIN_KEY)
)
def delete_key(key_id: KeyPath, _caller: AdminKey, session: WriteSession, keys: ApiKeysDep) -> Response:
    """Revoke a key: at once in this process, within 60 s in others. The last one with the scope admin stays."""
    revoke_key(session, key_id, environment_key=keys.has_environment_key)
    _forget_afterwards(session, keys, key_id)
    return Response(status_code=204)


def _forget_afterwards(session: Session, keys: ApiKeyCache, key_id: str) -> None:
    # After the commit: any earlier, the key could be looked up once more as it was.
    event.listen(session, "after_commit", lambda _session: keys.forget(key_id), once=True)


@own_router.get("", summary="The key of this call")
def get_own_key(caller: AnyKey, session: ReadSession) -> OwnKey:
    """Return the scopes and the expiry of the key of the call; no scope is needed."""
    row = key_with_id(session, caller.key_id)
    return OwnKey(
        key_id=caller.key_id,
        name=caller.name,
        scopes=[scope for scope in Scope if scope.value in caller.scopes],
        expires_at=row.expires_at if row else None,
    )


@audit_router.get("/audit", summary="Audit of admin calls")
def list_admin_calls(
    caller: AdminKey,
    session: ReadSession,
    key_id: Annotated[str | None, Query(pattern=CALLER_ID, description="Only this key's calls")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Calls in a page, at most")] = 100,
    cursor: Annotated[
        str | None,
        Query(pattern=worded(r"^[0-9]{1,9}$", CURSOR_RULE), description="`next_cursor` of the previous page"),
    ] = None,
) -> AuditPage:
    """List calls that needed the scope admin, the newest first; of refused calls at most ten a minute per key."""
    found = calls_before(session, int(cursor) if cursor else None, limit + 1, key_id)
    shown = [AuditOut.model_validate(row) for row in found[:limit]]
    return AuditPage(calls=shown, next_cursor=str(found[limit - 1].id) if len(found) > limit else None)
