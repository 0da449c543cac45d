"""API keys, of which only a hash is kept, their scopes, and the audit of admin calls."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime


class Scope(StrEnum):
    """The scopes of keys; none of them implies another."""

    READ = "read"
    INGEST = "ingest"
    ADMIN = "admin"


ALL_SCOPES = frozenset(scope.value for scope in Scope)


class ApiKey(Table):
    """A key, its scopes and how long it is valid."""

    __tablename__ = "api_keys"

    key_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    hash: Mapped[str] = mapped_column(String(64))  # SHA-256; keys are random enough not to need a slow one
    scopes: Mapped[str] = mapped_column(String(64))  # comma-separated
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    replaced_by: Mapped[str | None] = mapped_column(String(16))


class AuditEntry(Table):
    """One admin call, its caller and its result."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    key_id: Mapped[str] = mapped_column(String(64))
    key_name: Mapped[str] = mapped_column(Text)
    method: Mapped[str] = mapped_column(String(8))
    path: Mapped[str] = mapped_column(Text)
    status: Mapped[int]
    request_id: Mapped[str] = mapped_column(String(64))
    client: Mapped[str] = mapped_column(String(64))
