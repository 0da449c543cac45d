"""The table of scheduled maintenance, and all others in one place, for migrations and for copies of a database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, String, Text
from sqlalchemy.orm import Mapped, mapped_column

import app.counts.tables
import app.events.tables
import app.forecasts.tables
import app.keys.tables
import app.training.tables  # noqa: F401 # with those of links and the registry
from app.core.database import Table, UtcDateTime

ALL_TABLES = Table.metadata


class Upkeep(Table):
    """The latest time that something was done by schedule; one row for each kind.

    ``moment`` is the one that the schedule named, ``heartbeat_at`` when the row was last written, ``detail`` why
    nothing was done.
    """

    __tablename__ = "upkeep"

    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    moment: Mapped[datetime] = mapped_column(UtcDateTime)
    worker: Mapped[str] = mapped_column(String(64))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    figures: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    detail: Mapped[str | None] = mapped_column(Text)
