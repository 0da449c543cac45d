"""The registry: every trained model of every link, and every activation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime
from app.links.tables import Link

STATES = ("candidate", "active", "retired")


class ModelVersion(Table):
    """A trained model: what it was learnt from, how good it was, and where its artifact lies."""

    __tablename__ = "trained_models"
    __table_args__ = (
        UniqueConstraint("link_key", "version"),
        CheckConstraint("state IN ('candidate', 'active', 'retired')", name="state_known"),
        Index(
            "trained_models_one_active_idx",
            "link_key",
            "algorithm",
            unique=True,
            sqlite_where=text("state = 'active'"),
            postgresql_where=text("state = 'active'"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"))
    version: Mapped[int]  # counts from 1 on each link
    state: Mapped[str] = mapped_column(String(16))
    algorithm: Mapped[str] = mapped_column(String(16))
    folder: Mapped[str] = mapped_column(Text)  # below the model store
    fingerprint: Mapped[str] = mapped_column(String(64))  # SHA-256 of the artifact's manifest
    rank: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # on disk
    trained_from: Mapped[datetime] = mapped_column(UtcDateTime)
    trained_to: Mapped[datetime] = mapped_column(UtcDateTime)
    about: Mapped[dict[str, Any]] = mapped_column(JSON)  # parameters, held-out accuracy, verdicts
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    activated_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    damaged: Mapped[str | None] = mapped_column(Text)  # what was found wrong with the artifact


NO_VERSION = 0  # of an activation that withdrew the active model


class Activation(Table):
    """One version that became the active one, with the figures it was chosen by, or the withdrawal of one."""

    __tablename__ = "activations"
    __table_args__ = (Index(None, "link_key", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"))
    version: Mapped[int]
    previous_version: Mapped[int | None]
    activated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    activated_by: Mapped[str] = mapped_column(String(64))
    reason: Mapped[str | None] = mapped_column(Text)
    figures: Mapped[dict[str, Any] | None] = mapped_column(JSON)


class Ensemble(Table):
    """The aggregation of the experts of one link: `model.aggregation.state`, packed.

    ``state`` is as of the slot ``as_of``, in Unix seconds, and goes on with each forecast that is issued. ``start`` is
    what it was when the set of experts last changed, from where it can be computed again. ``issued_version`` is the
    model version of the forecast that was issued with the state; None before there is one. ``revision`` rises with
    every write.
    """

    __tablename__ = "ensembles"

    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"), primary_key=True)
    as_of: Mapped[int | None] = mapped_column(BigInteger)
    state: Mapped[bytes] = mapped_column(LargeBinary)
    start_as_of: Mapped[int | None] = mapped_column(BigInteger)
    start: Mapped[bytes] = mapped_column(LargeBinary)
    issued_version: Mapped[int | None]
    revision: Mapped[int] = mapped_column(default=1)
