"""Queries of stored forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Row, and_, bindparam, func, select, tuple_, update
from sqlalchemy.orm import Session

from app.core.database import array_text, in_values, is_sqlite
from app.core.partitions import ensure_months
from app.core.times import Span
from app.counts.queries import newest_by_link
from app.counts.tables import Count
from app.forecasts.issued_forecast import (
    HORIZONS,
    PROFILE,
    ExpertForecasts,
    IssuedForecast,
    StateUpdate,
    reason_without_model,
)
from app.forecasts.tables import METHODS, Forecast
from app.links.queries import LinkInfo
from app.registry.tables import Ensemble
from model.aggregation.state import Aggregation, pack, unpack

_COLUMNS = (
    "link_key, slot_start, horizon, model_version, expected, lower, upper, level, usual, method, "
    "degraded_reason, filled_lags, issued_at, experts"
)
_KEY = "link_key, slot_start, horizon, model_version"
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.removeprefix(f"{_KEY}, ").split(", "))
# Only of links that exist: one may have been deleted since its counts were read. A forecast that was issued before
# stays, unless the link's zone or counts changed since. One of an aggregate replaces others and is replaced: who issues
# it has made sure that the state of the aggregation is as it was read, and another follows when the experts changed.
_SAVE = (
    f"INSERT INTO forecasts ({_COLUMNS}) {{rows}} ON CONFLICT ({_KEY}) DO UPDATE SET {_REPLACED} "  # nosec B608
    "WHERE excluded.experts IS NOT NULL OR forecasts.experts IS NOT NULL OR "
    "forecasts.issued_at < (SELECT forecasts_valid_from FROM links WHERE links.link_key = excluded.link_key)"
)
_EXISTS = "WHERE EXISTS (SELECT 1 FROM links WHERE link_key = ?1)"
_SQLITE = _SAVE.format(rows=f"SELECT {', '.join(f'?{i}' for i in range(1, 15))} {_EXISTS}")
_ARRAYS = (  # constants only
    "SELECT * FROM unnest(%s::int[], %s::bigint[], %s::smallint[], %s::int[], %s::float8[], %s::float8[], "
    "%s::float8[], %s::float8[], %s::float8[], %s::smallint[], %s::text[], %s::smallint[], %s::bigint[], %s::bytea[]) "
    f"AS issued ({_COLUMNS}) WHERE link_key IN (SELECT link_key FROM existing)"  # nosec B608
)
_EXISTING = "SELECT link_key FROM links WHERE link_key = ANY (%s::int[]) ORDER BY link_key FOR KEY SHARE"
_POSTGRESQL = f"WITH existing AS MATERIALIZED ({_EXISTING}) {_SAVE.format(rows=_ARRAYS)}"


def save_forecasts(session: Session, forecasts: Iterable[IssuedForecast]) -> bool:
    """Store forecasts and return whether all were; one that may still be served for its slot and model stays."""
    rows = [row for issued in forecasts for row in _rows(issued)]
    if not rows:
        return True
    rows.sort(key=itemgetter(slice(4)))  # processes that issue the same in another order would wait for each other
    ensure_months(session, Forecast.__tablename__, {slot for _, slot, *_ in rows})
    connection = session.connection()
    if not is_sqlite(connection):
        columns = tuple(_array(column) for column in zip(*rows, strict=True))
        saved = connection.exec_driver_sql(_POSTGRESQL, (columns[0], *columns))
    else:
        saved = connection.exec_driver_sql(_SQLITE, rows)
    return saved.rowcount == len(rows)


def _array(column: Sequence[Any]) -> str | list[str | bytes | None]:
    return list(column) if any(isinstance(value, str | bytes) for value in column) else array_text(column)


def _rows(issued: IssuedForecast) -> list[tuple[int, int, *tuple[object, ...]]]:
    """Return a row for each horizon."""
    method = METHODS.index(issued.method)
    return [
        (
            issued.link.link_key,
            slot,
            h + 1,
            issued.model_version,
            issued.expected[h],
            issued.lower[h],
            issued.upper[h],
            issued.level,
            issued.profile[h],
            method,
            issued.degraded_reason,
            issued.filled_lags,
            issued.issued_at,
            issued.experts.by_horizon[h] if issued.experts else None,
        )
        for h, slot in enumerate(issued.slots())
    ]


class StoredEnsemble(NamedTuple):
    """The stored state of a link's aggregation, see `Ensemble`."""

    as_of: int | None
    state: bytes
    issued_version: int | None
    revision: int
    start_as_of: int | None = None
    start: bytes = b""

    @classmethod
    def none(cls) -> StoredEnsemble:
        """Return what stands in for a state that is not stored: weights are equal."""
        return _NONE_STORED

    def has_issued(self, as_of: int | None) -> bool:
        """Return whether the state is that of a forecast from a slot."""
        return self.issued_version is not None and self.as_of == as_of

    @property
    def factors(self) -> bytes:
        """Return the factors of the intervals, packed."""
        return unpack([self.state]).factors.factors.tobytes()


WRITTEN = ("as_of", "state", "issued_version", "revision")  # with each forecast
_NONE_STORED = StoredEnsemble(None, pack(Aggregation.start(1))[0], None, 0)


def stored_ensembles(session: Session, link_keys: Sequence[int]) -> dict[int, StoredEnsemble]:
    """Return the states of the aggregations of links, by link key."""
    if not link_keys:
        return {}
    names = "link_key", *StoredEnsemble._fields
    query = select(*(Ensemble.__table__.c[name] for name in names)).where(in_values(Ensemble.link_key, link_keys))
    return {row[0]: StoredEnsemble(*row[1:]) for row in session.execute(query)}


def lock_ensembles(session: Session, link_keys: Sequence[int]) -> dict[int, int]:
    """Lock the states of aggregations against other writers; return their revisions by link key."""
    if not link_keys:
        return {}
    if not is_sqlite(session):  # links first, as whoever deletes one locks it before its state
        session.connection().exec_driver_sql(_EXISTING, (array_text(link_keys),))
    query = select(Ensemble.link_key, Ensemble.revision).where(in_values(Ensemble.link_key, link_keys))
    return dict(session.execute(query.order_by(Ensemble.link_key).with_for_update()).all())


def save_states(session: Session, updates: Mapping[int, tuple[StateUpdate, int | None]]) -> None:
    """Store the states of locked aggregations, by link key, each with the version of the forecast that was issued."""
    changed = [
        {
            "key": key,
            "as_of": one.as_of,
            "state": one.state,
            "issued_version": version,
            "revision": one.revision + 1,
        }
        for key, (one, version) in sorted(updates.items())
    ]
    if changed:
        statement = update(Ensemble).where(Ensemble.link_key == bindparam("key"))
        # A link that had no count when its experts were activated starts with its first forecast.
        start = {"start_as_of": func.coalesce(Ensemble.start_as_of, bindparam("as_of"))}
        session.connection().execute(statement.values({name: bindparam(name) for name in WRITTEN} | start), changed)


def issued_with(
    state: StoredEnsemble | None, link_key: int, as_of: int | None, stored: Mapping[tuple[int, int], IssuedForecast]
) -> IssuedForecast | None:
    """Return the stored forecast that was issued from a slot with the state of an aggregation, if there is one."""
    if state is None or not state.has_issued(as_of):
        return None
    issued = stored.get((link_key, state.issued_version or 0))
    if issued is None or issued.experts is None:
        return issued
    return issued._replace(experts=issued.experts._replace(factors=state.factors))


def stored_forecasts(
    session: Session, links: Sequence[LinkInfo], as_of: dict[int, int]
) -> dict[tuple[int, int], IssuedForecast]:
    """Return the forecasts that were issued from the slots ``as_of``, by link key and model version.

    One that was issued before the link's zone or counts changed is left out.
    """
    alike: dict[tuple[int, int], dict[int, LinkInfo]] = {}
    for link in links:
        alike.setdefault((as_of[link.link_key], link.slot_seconds), {})[link.link_key] = link
    found: dict[tuple[int, int], IssuedForecast] = {}
    for (newest, seconds), by_key in alike.items():
        query = select(Forecast.__table__).where(
            in_values(Forecast.link_key, by_key),
            # The span follows from the next condition; without it SQLite would read all forecasts of a link.
            Forecast.slot_start.between(newest + seconds, newest + HORIZONS * seconds),
            Forecast.slot_start - Forecast.horizon * seconds == newest,
        )
        rows = session.execute(query.order_by(Forecast.link_key, Forecast.model_version, Forecast.horizon))
        for (key, version), group in groupby(rows, key=itemgetter(0, 3)):
            link, horizons = by_key[key], list(group)
            if len(horizons) == HORIZONS and horizons[0].issued_at >= link.forecasts_valid_from:
                found[key, version] = _issued_forecast(link, newest, horizons)
    return found


def _issued_forecast(link: LinkInfo, newest: int, rows: Sequence[Row[Any]]) -> IssuedForecast:
    """Return the forecast that was stored as these rows, the nearest horizon first."""
    nearest = rows[0]
    method, reason = METHODS[nearest.method], nearest.degraded_reason
    if method == PROFILE and not nearest.model_version and link.choice:  # which may have been made since it was issued
        without = reason_without_model(link)
        reason = None if without is None else without.text
    return IssuedForecast(
        link,
        newest,
        nearest.model_version,
        method,
        reason,
        nearest.filled_lags,
        nearest.level,
        [row.expected for row in rows],
        [row.lower for row in rows],
        [row.upper for row in rows],
        [row.usual for row in rows],
        nearest.issued_at,
        experts=None if nearest.experts is None else ExpertForecasts(tuple(row.experts for row in rows)),
    )


PastForecast = tuple[Forecast, int | None, int | None]  # with its count and quality


def last_issued(rows: Iterable[PastForecast]) -> list[PastForecast]:
    """Return of the forecasts of each slot, in order of slots, the one that was issued last."""
    by_slot = groupby(rows, key=lambda row: row[0].slot_start)
    return [max(of_slot, key=lambda row: row[0].issued_at) for _, of_slot in by_slot]


def past_forecasts(
    session: Session,
    link_key: int,
    span: Span,
    horizon: int | None,
    model_version: int | None,
    after: tuple[int, ...] | None,
    limit: int,
    *,
    by_experts: bool = False,
) -> list[PastForecast]:
    """Return forecasts of the slots in a span, in order of slot, horizon and version, each with count and quality.

    ``after`` are slot, horizon and version of the last one returned before. Of several forecasts for one slot and
    horizon, by different models, all are returned; with ``by_experts``, only those of ensembles.
    """
    place = Forecast.slot_start, Forecast.horizon, Forecast.model_version
    # The span restricts counts as well, or PostgreSQL would look for them in every month.
    came = [Count.link_key == Forecast.link_key, Count.slot_start == Forecast.slot_start]
    came += [Count.slot_start >= span.begin, Count.slot_start < span.end]
    query = select(Forecast, Count.count, Count.quality).outerjoin(Count, and_(*came)).order_by(*place).limit(limit)
    query = query.where(
        Forecast.link_key == link_key, Forecast.slot_start >= span.begin, Forecast.slot_start < span.end
    )
    if after is not None:
        query = query.where(tuple_(*place) > tuple_(*after))
    if horizon is not None:
        query = query.where(Forecast.horizon == horizon)
    if model_version is not None:
        query = query.where(Forecast.model_version == model_version)
    if by_experts:
        query = query.where(Forecast.experts.is_not(None))
    return [(forecast, count, quality) for forecast, count, quality in session.execute(query)]


def newest_forecast(session: Session, link_key: int) -> int | None:
    """Return the start of the newest slot that was forecast."""
    return newest_by_link(session, Forecast, [link_key]).get(link_key)
