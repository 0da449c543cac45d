"""Keys over REST."""

from __future__ import annotations

from fastapi import APIRouter, Response
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.http.dependencies import ReadSession, WriteSession
from app.http.problems import problem_responses
from app.keys.authentication import AdminKey, ApiKeysDep
from app.keys.cache import ApiKeyCache
from app.keys.issue import issue_key, revoke_key
from app.keys.queries import all_keys
from app.keys.schemas import IssuedKeyOut, KeyList, KeyOut, KeyPath, NewKey

router = APIRouter(prefix="/v1/admin/keys", tags=["keys"])


@router.post("", status_code=201, summary="Make a key", responses=problem_responses(404, 409))
def post_key(body: NewKey, _caller: AdminKey, session: WriteSession, keys: ApiKeysDep) -> IssuedKeyOut:
    """Make a key; the answer shows it, and nothing ever will again.

    With `replaces` the other key stays valid for `overlap_hours`, so that its users can change over.
    """
    issued = issue_key(
        session,
        name=body.name,
        scopes=body.scopes,
        expires_in_days=body.expires_in_days,
        replaces=body.replaces,
        overlap_hours=body.overlap_hours,
        environment_key=keys.has_environment_key,
    )
    if body.replaces is not None:
        _forget_afterwards(session, keys, body.replaces)
    return IssuedKeyOut.issued(issued)


@router.get("", summary="All keys")
def get_keys(_caller: AdminKey, session: ReadSession) -> KeyList:
    """List every key, revoked ones too; never the key itself or its hash."""
    return KeyList(keys=[KeyOut.of(row) for row in all_keys(session)])


@router.delete("/{key_id}", status_code=204, summary="Revoke a key", responses=problem_responses(409))
def delete_key(key_id: KeyPath, _caller: AdminKey, session: WriteSession, keys: ApiKeysDep) -> Response:
    """Revoke a key: at once in this process, within 60 s in others. The last one with the scope admin stays."""
    revoke_key(session, key_id, environment_key=keys.has_environment_key)
    _forget_afterwards(session, keys, key_id)
    return Response(status_code=204)


def _forget_afterwards(session: Session, keys: ApiKeyCache, key_id: str) -> None:
    # Once the change is stored: any earlier, the key could be looked up once more as it was.
    event.listen(session, "after_commit", lambda _session: keys.forget(key_id), once=True)
