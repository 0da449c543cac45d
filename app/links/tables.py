"""Links, the links upstream of each, and the folder that is named after a link."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime


class Link(Table):
    """A directed stretch of road with a detector.

    ``link_key`` is what other tables refer to: a small number, where the owner's own ``link_id``
    would be repeated in every count.
    """

    __tablename__ = "links"
    __table_args__ = (
        CheckConstraint("slot_minutes > 0", name="slot_minutes_positive"),
        {"sqlite_autoincrement": True},  # a key is never used again, because caches may still hold it
    )

    link_key: Mapped[int] = mapped_column(primary_key=True)
    link_id: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(Text)
    zone: Mapped[str] = mapped_column(String(64))
    slot_minutes: Mapped[int]
    capacity: Mapped[float | None]  # vehicles per hour
    geometry: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # What it is forecast by, where that was decided: "ensemble", the aggregate of its experts, "profile", which won
    # on held-out days, or "withdrawn". Otherwise it is the model that was activated last.
    choice: Mapped[str | None] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # Microseconds since 1970. Forecasts issued earlier stay in history but are not served again: the zone or the
    # counts they were computed from have changed.
    forecasts_valid_from: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class UpstreamLink(Table):
    """One link whose traffic runs into another."""

    __tablename__ = "upstream_links"

    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"), primary_key=True)
    upstream_key: Mapped[int] = mapped_column(
        ForeignKey(Link.link_key, ondelete="CASCADE"), primary_key=True, index=True
    )


def folder_name(link_id: str) -> str:
    """Return the name of a link's folder: its id, with a leading dot escaped, which would hide it or name another."""
    return f"%2E{link_id[1:]}" if link_id.startswith(".") else link_id
