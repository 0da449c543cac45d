"""Forecasts as they were issued."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, LargeBinary, SmallInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.database import Table
from app.links.tables import Link

# In the database a method is its place in this row; new ones go to the end.
METHODS = ("KR_SML", "MLKR", "KR", "KR_PCA", "profile", "last_count", "NETWORK", "ENSEMBLE")


class Forecast(Table):
    """A forecast of one slot, ``horizon`` slots after the newest count known then.

    ``model_version`` is 0 where no trained model made it. ``usual`` is the link's profile for the
    slot, against which skill is measured. ``experts`` has the weight and the forecast of each expert of
    an aggregate: two rows of single-precision numbers, in the order of ``EXPERTS``; NaN for no forecast.
    """

    __tablename__ = "forecasts"
    __table_args__ = (
        CheckConstraint("horizon >= 1", name="horizon_from_1"),
        {"sqlite_with_rowid": False},
    )

    link_key: Mapped[int] = mapped_column(ForeignKey(Link.link_key, ondelete="CASCADE"), primary_key=True)
    slot_start: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    horizon: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    model_version: Mapped[int] = mapped_column(primary_key=True)
    expected: Mapped[float]
    lower: Mapped[float | None]
    upper: Mapped[float | None]
    level: Mapped[float]
    usual: Mapped[float | None]
    method: Mapped[int] = mapped_column(SmallInteger)
    degraded_reason: Mapped[str | None] = mapped_column(Text)
    filled_lags: Mapped[int] = mapped_column(SmallInteger)
    issued_at: Mapped[int] = mapped_column(BigInteger)  # microseconds since 1970
    experts: Mapped[bytes | None] = mapped_column(LargeBinary)
