"""Every call that needed the scope admin."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime


class AuditEntry(Table):
    """One admin call: who, what, with which result."""

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
