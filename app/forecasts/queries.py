"""Queries of stored forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Row, and_, select, tuple_
from sqlalchemy.orm import Session

from app.core.database import array_text, in_values, is_sqlite
from app.core.partitions import ensure_months
from app.core.times import Span
from app.counts.queries import newest_by_link
from app.counts.tables import Count
from app.forecasts.issued_forecast import HORIZONS, PROFILE, IssuedForecast, reason_without_model
from app.forecasts.tables import METHODS, Forecast
from app.links.queries import LinkInfo

_COLUMNS = (
    "link_key, slot_start, horizon, model_version, expected, lower, upper, level, usual, method, "
    "degraded_reason, filled_lags, issued_at"
)
_KEY = "link_key, slot_start, horizon, model_version"
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.removeprefix(f"{_KEY}, ").split(", "))
# Only of links that exist: one may have been deleted since its counts were read. A forecast that was issued before
# stays, unless the link's zone or counts changed since.
_SAVE = (
    f"INSERT INTO forecasts ({_COLUMNS}) {{rows}} ON CONFLICT ({_KEY}) DO UPDATE SET {_REPLACED} "  # nosec B608
    "WHERE forecasts.issued_at < (SELECT forecasts_valid_from FROM links WHERE links.link_key = excluded.link_key)"
)
_EXISTS = "WHERE EXISTS (SELECT 1 FROM links WHERE link_key = ?1)"
_SQLITE = _SAVE.format(rows=f"SELECT {', '.join(f'?{i}' for i in range(1, 14))} {_EXISTS}")
_ARRAYS = (  # constants only
    "SELECT * FROM unnest(%s::int[], %s::bigint[], %s::smallint[], %s::int[], %s::float8[], %s::float8[], "
    "%s::float8[], %s::float8[], %s::float8[], %s::smallint[], %s::text[], %s::smallint[], %s::bigint[]) "
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


def _array(column: Sequence[Any]) -> str | list[str | None]:
    return list(column) if any(isinstance(value, str) for value in column) else array_text(column)


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
        )
        for h, slot in enumerate(issued.slots())
    ]


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
    )


def past_forecasts(
    session: Session,
    link_key: int,
    span: Span,
    horizon: int | None,
    model_version: int | None,
    after: tuple[int, ...] | None,
    limit: int,
) -> list[tuple[Forecast, int | None, int | None]]:
    """Return forecasts of the slots in a span, in order of slot, horizon and version, each with count and quality.

    ``after`` are slot, horizon and version of the last one returned before. Of several forecasts for one slot and
    horizon, by different models, all are returned.
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
    return [(forecast, count, quality) for forecast, count, quality in session.execute(query)]


def newest_forecast(session: Session, link_key: int) -> int | None:
    """Return the start of the newest slot that was forecast."""
    return newest_by_link(session, Forecast, [link_key]).get(link_key)
