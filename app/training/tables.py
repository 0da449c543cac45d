"""Retrain runs, and the state of each of their links."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime
from app.links.tables import Link

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
OPEN = text("state IN ('waiting', 'training')")


class RetrainRun(Table):
    """One training attempt, over one or many links.

    ``worker`` is the worker that executes it, and renews ``heartbeat_at``; when that is too old, another worker
    claims the run.
    """

    __tablename__ = "retrain_runs"
    __table_args__ = (
        CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state_known"),
        Index("retrain_runs_occasion_key", "occasion", unique=True),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    algorithm: Mapped[str] = mapped_column(String(16))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    activate: Mapped[str] = mapped_column(String(16))
    requested_by: Mapped[str] = mapped_column(String(64))
    requested_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # Of a run that no person requested: "schedule 2026-11-16T03:00:00Z". Unique, so that of several
    # processes to which it is due one queues the run.
    occasion: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    worker: Mapped[str | None] = mapped_column(String(64))
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    detail: Mapped[str | None] = mapped_column(Text)
    stage: Mapped[str | None] = mapped_column(String(16))  # network or links, of a running run
    stage_share: Mapped[float | None]  # of the stage "network" that is done
    stage_started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RetrainLink(Table):
    """One link of a run; a link is open in at most one run at a time."""

    __tablename__ = "retrain_links"
    __table_args__ = (
        CheckConstraint("state IN ('waiting', 'training', 'done', 'failed', 'cancelled')", name="state_known"),
        Index("retrain_links_one_open_idx", "link_key", unique=True, sqlite_where=OPEN, postgresql_where=OPEN),
    )

    run_id: Mapped[int] = mapped_column(ForeignKey(RetrainRun.id, ondelete="CASCADE"), primary_key=True)
    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    version: Mapped[int | None]  # of the candidate; of several, of the first one activated or the best by itself
    versions: Mapped[dict[str, int] | None] = mapped_column(JSON)  # of all candidates, by algorithm
    outcome: Mapped[str | None] = mapped_column(String(16))  # activated, refused, profile, failed, cancelled
    reason: Mapped[str | None] = mapped_column(Text)
    figures: Mapped[dict[str, Any] | None] = mapped_column(JSON)
