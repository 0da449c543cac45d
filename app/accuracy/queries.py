"""Forecasts joined to the counts that came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from app.among import among
from app.counts.tables import Count
from app.forecasts.tables import Forecast

Array = NDArray[np.float64]
Keys = NDArray[np.int64]
NONE = -1  # horizon and version of a count without a forecast


@dataclass(frozen=True, eq=False)
class Pairs:
    """Counts, each with a forecast or with NaN in its place; rows in the order of link and slot."""

    link_key: Keys
    slot_start: Keys
    count: Array
    horizon: Keys
    version: Keys
    issued_at: Keys
    expected: Array
    lower: Array
    upper: Array
    usual: Array
    last_week: Array  # NaN until somebody looks it up

    def where(self, wanted: NDArray[Any] | slice) -> Pairs:
        """Keep some of the rows, or put them in order."""
        return Pairs(**{name: getattr(self, name)[wanted] for name in COLUMNS})

    def as_served(self) -> Pairs:
        """Keep one row for each count and horizon: the forecast that was issued last."""
        order = np.lexsort((self.version, self.issued_at, self.horizon, self.slot_start, self.link_key))
        rows = self.where(order)
        same = [column[1:] == column[:-1] for column in (rows.link_key, rows.slot_start, rows.horizon)]
        last = np.ones(len(order), dtype=np.bool_)
        last[:-1] = ~np.logical_and.reduce(same)
        return rows.where(last)


COLUMNS = tuple(field.name for field in fields(Pairs))
WHOLE = ("link_key", "slot_start", "horizon", "version", "issued_at")


def counts_with_forecasts(
    session: Session,
    link_keys: Sequence[int],
    begin: int,
    end: int,
    *,
    horizon: int | None,
    model_version: int | None = None,
) -> Pairs:
    """Give the counts of slots from ``begin`` to before ``end`` with every forecast of them that is asked for."""
    joined = [Forecast.link_key == Count.link_key, Forecast.slot_start == Count.slot_start]
    joined += [Forecast.horizon == horizon] if horizon is not None else []
    joined += [Forecast.model_version == model_version] if model_version is not None else []
    wanted = select(
        Count.link_key,
        Count.slot_start,
        Count.count,
        Forecast.horizon,
        Forecast.model_version,
        Forecast.issued_at,
        Forecast.expected,
        Forecast.lower,
        Forecast.upper,
        Forecast.usual,
    )
    question = wanted.outerjoin_from(Count, Forecast, and_(*joined, *_bounds(session, link_keys, begin, end)))
    question = question.where(among(Count.link_key, link_keys), Count.slot_start >= begin, Count.slot_start < end)
    # Past the ORM, which takes as long over a hundred thousand rows as the database.
    return _columns(session.connection().execute(question.order_by(Count.link_key, Count.slot_start)).all())


def _bounds(session: Session, link_keys: Sequence[int], begin: int, end: int) -> list[ColumnElement[bool]]:
    """Say of forecasts what is said of the counts that they are joined to.

    PostgreSQL would read those of every link and be ready for every month; SQLite, which goes from each
    count to its forecast, would go a longer way.
    """
    if session.get_bind().dialect.name != "postgresql":
        return []
    return [among(Forecast.link_key, link_keys), Forecast.slot_start >= begin, Forecast.slot_start < end]


def _columns(rows: Sequence[Any]) -> Pairs:
    names = COLUMNS[:-1]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    # None becomes NaN; whole numbers are below 2**53, so a float holds them exactly.
    floats = {name: np.array(column, dtype=np.float64) for name, column in zip(names, columns, strict=True)}
    whole = {name: np.where(np.isnan(floats[name]), NONE, floats[name]).astype(np.int64) for name in WHOLE}
    typed: dict[str, Any] = floats | {"last_week": np.full(len(rows), np.nan)} | whole
    return Pairs(**typed)
