"""Counts and their corrections. Slots are Unix seconds of their start, the same in every database."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, SmallInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table, UtcDateTime
from app.links.tables import Link


class Quality(StrEnum):
    """The origin of a count, as its sender states it."""

    OBSERVED = "observed"
    IMPUTED = "imputed"
    SUSPECT = "suspect"


# In the database a quality is its position in this tuple; new ones go to the end.
QUALITIES = tuple(Quality)


class Count(Table):
    """Vehicles on one link in one slot. A gap is a missing row."""

    __tablename__ = "counts"
    __table_args__ = (
        CheckConstraint("count >= 0", name="not_negative"),
        CheckConstraint("quality BETWEEN 0 AND 2", name="quality_known"),
        {"sqlite_with_rowid": False},
    )

    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"), primary_key=True)
    slot_start: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    count: Mapped[int]
    quality: Mapped[int] = mapped_column(SmallInteger)


class CountCorrection(Table):
    """A count that a later one replaced, or that was deleted for a reason."""

    __tablename__ = "count_corrections"
    __table_args__ = (Index(None, "link_key", "slot_start"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"))
    slot_start: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]
    quality: Mapped[int] = mapped_column(SmallInteger)
    replaced_at: Mapped[datetime] = mapped_column(UtcDateTime)
    reason: Mapped[str | None] = mapped_column(Text)  # why it was deleted; null where a later count replaced it
