"""Webhooks: addresses that events are sent to."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime


class Webhook(Table):
    """An address, the events that it is sent, the secret they are signed with, and how delivery stands."""

    __tablename__ = "webhooks"

    id: Mapped[int] = mapped_column(primary_key=True)
    url: Mapped[str] = mapped_column(Text)
    events: Mapped[str] = mapped_column(String(64))  # comma-separated kinds
    secret: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(64))
    last_activation: Mapped[int] = mapped_column(default=0)  # id of the newest activation delivered
    last_forecast: Mapped[str | None] = mapped_column(Text)  # the newest forecasts delivered, see deliver.py
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    failures: Mapped[int] = mapped_column(default=0)  # in a row
    retry_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_error: Mapped[str | None] = mapped_column(Text)
