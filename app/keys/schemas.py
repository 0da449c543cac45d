"""Keys, and the audit of admin calls, in requests and responses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from app.core.errors import NO_NUL_RULE, worded
from app.http.requests import WHOLE
from app.keys.issue import OVERLAP_HOURS
from app.keys.tables import ApiKey, Scope

KEY_ID = worded(r"^[0-9A-Za-z]{1,16}$", "must be 1 to 16 letters and digits")
NO_NUL = worded(r"^[^\x00]+$", NO_NUL_RULE)
MOST_DAYS = 3650
MOST_HOURS = 8760
EXAMPLE: JsonDict = {"name": "signals", "scopes": ["read", "ingest"], "expires_in_days": 365}
KEY_EXAMPLE: JsonDict = {
    "key_id": "3f9c0a1b2d4e",
    "name": "signals",
    "scopes": ["read", "ingest"],
    "state": "valid",
    "created_at": "2026-11-18T21:31:40.882110Z",
    "expires_at": "2027-11-18T21:31:40.882110Z",
    "revoked_at": None,
    "last_used_at": None,
    "replaced_by": None,
}
OWN_EXAMPLE: JsonDict = {
    "key_id": "3f9c0a1b2d4e",
    "name": "signals",
    "scopes": ["read", "ingest"],
    "expires_at": "2027-11-18T21:31:40.882110Z",
}
CALL_EXAMPLE: JsonDict = {
    "at": "2026-11-18T21:12:11.503112Z",
    "key_id": "3f9c0a1b2d4e",
    "key_name": "signals",
    "method": "POST",
    "path": "/v1/admin/retrain",
    "status": 202,
    "request_id": "5a697f8065c600000d",
    "client": "192.0.2.7",
}


def _once_each(scopes: list[Scope]) -> list[Scope]:
    if len(set(scopes)) < len(scopes):
        raise ValueError("it must name each scope once")
    return scopes


KeyPath = Annotated[str, Path(pattern=KEY_ID, description="The key's id, as the list of keys shows it")]
Scopes = Annotated[
    list[Scope], Field(min_length=1, json_schema_extra={"uniqueItems": True}), AfterValidator(_once_each)
]


class NewKey(BaseModel):
    """A key to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    name: Annotated[
        str, Field(min_length=1, max_length=100, pattern=NO_NUL, description="Who uses the key, or for what")
    ]
    scopes: Annotated[Scopes, Field(description="What it may do; no scope implies another")]
    expires_in_days: Annotated[
        Annotated[int, Field(ge=1, le=MOST_DAYS), WHOLE] | None,
        Field(description="Days until it expires; never by default"),
    ] = None
    replaces: Annotated[str | None, Field(pattern=KEY_ID, description="Id of a key that this one replaces")] = None
    overlap_hours: Annotated[
        float,
        Field(strict=True, ge=0, le=MOST_HOURS, description="Hours that the replaced key stays valid beside it"),
    ] = OVERLAP_HOURS


class KeyOut(BaseModel):
    """A key, without the key itself."""

    key_id: str
    name: str
    scopes: list[Scope]
    state: Literal["valid", "expired", "revoked"]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: Annotated[datetime | None, Field(description="To the minute")]
    replaced_by: str | None

    @classmethod
    def of(cls, row: ApiKey, **more: Any) -> Self:
        """Return a row as it is shown."""
        expired = row.expires_at is not None and row.expires_at <= datetime.now(UTC)
        shown = {name: getattr(row, name) for name in KeyOut.model_fields.keys() - {"scopes", "state"}}
        state = "revoked" if row.revoked_at is not None else "expired" if expired else "valid"
        return cls.model_validate(shown | more | {"scopes": row.scopes.split(","), "state": state})


class IssuedKeyOut(KeyOut):
    """A new key; it is shown here and never again."""

    model_config = ConfigDict(json_schema_extra={"examples": [KEY_EXAMPLE | {"key": "fc_3f9c0a1b2d4e_aBcD…"}]})

    key: Annotated[str, Field(examples=["fc_3f9c0a1b2d4e_aBcD…"])]


class KeyList(BaseModel):
    """Every key, the newest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keys": [KEY_EXAMPLE]}]})

    keys: list[KeyOut]


class OwnKey(BaseModel):
    """The key of the call, without the key itself."""

    model_config = ConfigDict(json_schema_extra={"examples": [OWN_EXAMPLE]})

    key_id: Annotated[
        str,
        Field(
            description="`environment` for `FLOWCAST_ADMIN_KEY`, `anonymous` where no key is needed",
            examples=["3f9c0a1b2d4e"],
        ),
    ]
    name: Annotated[str, Field(examples=["signals"])]
    scopes: Annotated[list[Scope], Field(description="What it may do; no scope implies another")]
    expires_at: Annotated[datetime | None, Field(description="When it expires; null for never")]


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

    model_config = ConfigDict(json_schema_extra={"examples": [{"calls": [CALL_EXAMPLE], "next_cursor": None}]})

    calls: list[AuditOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")
