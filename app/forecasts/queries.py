"""Forecasts in the database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import and_, select, tuple_
from sqlalchemy.orm import Session

from app.core.database import array_text
from app.core.partitions import ensure_months
from app.core.times import Span
from app.counts.queries import newest_by_link
from app.counts.tables import Count
from app.forecasts.issued_forecast import PROFILE, WITHOUT_MODEL, IssuedForecast, reason_without_model
from app.forecasts.lag_windows import HORIZONS
from app.forecasts.tables import METHODS, Forecast
from app.links.queries import LinkInfo

COLUMNS = (
    "link_key, slot_start, horizon, model_version, expected, lower, upper, level, usual, method, "
    "degraded_reason, filled_lags, issued_at"
)
_KEY = "link_key, slot_start, horizon, model_version"
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.removeprefix(f"{_KEY}, ").split(", "))
# Only of links that exist: one may have been deleted since its counts were read. A forecast that was issued before
# stays, unless the link's zone or counts changed since.
_SAVE = (
    f"INSERT INTO forecasts ({COLUMNS}) {{rows}} ON CONFLICT ({_KEY}) DO UPDATE SET {_REPLACED} "  # nosec B608
    "WHERE forecasts.issued_at < (SELECT forecasts_valid_from FROM links WHERE links.link_key = excluded.link_key)"
)
_THERE = "WHERE EXISTS (SELECT 1 FROM links WHERE link_key = ?1)"
_SQLITE = _SAVE.format(rows=f"SELECT {', '.join(f'?{i}' for i in range(1, 14))} {_THERE}")
_ARRAYS = (  # constants of ours
    "SELECT * FROM unnest(%s::int[], %s::bigint[], %s::smallint[], %s::int[], %s::float8[], %s::float8[], "
    "%s::float8[], %s::float8[], %s::float8[], %s::smallint[], %s::text[], %s::smallint[], %s::bigint[]) "
    f"AS issued ({COLUMNS}) WHERE link_key IN (SELECT link_key FROM existing)"  # nosec B608
)
_EXISTING = "SELECT link_key FROM links WHERE link_key = ANY (%s::int[]) ORDER BY link_key FOR KEY SHARE"
_POSTGRESQL = f"WITH existing AS MATERIALIZED ({_EXISTING}) {_SAVE.format(rows=_ARRAYS)}"
# The slots are named as a span as well, without which SQLite would read all forecasts of a link.
_AS_OF = "slot_start BETWEEN {0} AND {0} AND slot_start - horizon * {0} = {0}"
_WHERE = f"WHERE {{many}} AND {_AS_OF} ORDER BY link_key, model_version, horizon"
_ISSUED = f"SELECT {COLUMNS} FROM forecasts {_WHERE}"  # nosec B608 # constants of ours
_ISSUED_SQLITE = _ISSUED.format("?", many="link_key IN (SELECT value FROM json_each(?))")
_ISSUED_POSTGRESQL = _ISSUED.format("%s", many="link_key = ANY (%s::int[])")


class PastForecast(NamedTuple):
    """A forecast as it was issued, and the count that came."""

    slot_start: int
    horizon: int
    model_version: int
    expected: float
    lower: float | None
    upper: float | None
    level: float
    method: str
    degraded_reason: str | None
    filled_lags: int
    issued_at: int
    came: int | None
    quality: int | None


def save_forecasts(session: Session, forecasts: Iterable[IssuedForecast]) -> bool:
    """Store forecasts and return whether all were; one that may still be served for its slot and model stays."""
    rows = [row for issued in forecasts for row in _rows(issued)]
    if not rows:
        return True
    rows.sort(key=itemgetter(slice(4)))  # processes that issue the same in another order would wait for each other
    ensure_months(session, Forecast.__tablename__, {slot for _, slot, *_ in rows})
    connection = session.connection()
    if connection.dialect.name == "postgresql":
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
            issued.usual[h],
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
    """Return the forecasts that were issued from the slots ``as_of``, by link key and model version."""
    alike: dict[tuple[int, int], dict[int, LinkInfo]] = {}
    for link in links:
        alike.setdefault((as_of[link.link_key], link.slot_seconds), {})[link.link_key] = link
    found: dict[tuple[int, int], IssuedForecast] = {}
    for (newest, seconds), by_key in alike.items():
        parts: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        for row in _issued(session, list(by_key), newest, seconds):
            parts.setdefault((row[0], row[3]), []).append(row)
        for (key, version), rows in parts.items():
            if len(rows) == HORIZONS and is_served(by_key[key], rows[0]):
                found[key, version] = forecast_of_rows(by_key[key], newest, rows)
    return found


def _issued(session: Session, keys: list[int], newest: int, seconds: int) -> list[tuple[Any, ...]]:
    """Read the rows of forecasts that were issued from one slot."""
    as_of = (newest + seconds, newest + HORIZONS * seconds, seconds, newest)  # the parameters of _AS_OF
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        result = connection.exec_driver_sql(_ISSUED_POSTGRESQL, (keys, *as_of))
    else:
        result = connection.exec_driver_sql(_ISSUED_SQLITE, (json.dumps(keys), *as_of))
    return [tuple(row) for row in result]


def is_served(link: LinkInfo, row: tuple[Any, ...]) -> bool:
    """Return whether a stored forecast may be served: neither the link's zone nor its counts changed since."""
    return bool(row[-1] >= link.forecasts_valid_from)  # issued_at is the last of COLUMNS


def forecast_of_rows(link: LinkInfo, newest: int, rows: Sequence[tuple[Any, ...]]) -> IssuedForecast:
    """Return rows of all horizons, nearest first, as the statement they were made of."""
    columns = list(zip(*rows, strict=True))
    _, _, _, versions, expected, lower, upper, level, usual, methods, reasons, filled, issued_at = columns
    method, reason = METHODS[methods[0]], reasons[0]
    if method == PROFILE and reason in WITHOUT_MODEL:  # that it answers may have been decided after it was issued
        without = reason_without_model(link)
        reason = None if without is None else without.text
    return IssuedForecast(
        link,
        newest,
        versions[0],
        method,
        reason,
        filled[0],
        level[0],
        list(expected),
        list(lower),
        list(upper),
        list(usual),
        issued_at[0],
    )


def past_forecasts(
    session: Session,
    link_key: int,
    span: Span,
    only: tuple[int | None, int | None],
    after: tuple[int, ...] | None,
    limit: int,
) -> list[PastForecast]:
    """Return forecasts of the slots in a span, with the counts that came, in order of slot, horizon and version.

    ``only`` is a horizon and a version to keep to; ``after`` are slot, horizon and version of the
    last one already given. Of several for one slot and horizon, by different models, all are given.
    """
    place = tuple_(Forecast.slot_start, Forecast.horizon, Forecast.model_version)
    horizon, model_version = only
    # The span is given for both: PostgreSQL would look for counts in every month, in which there are none.
    came = [Count.link_key == Forecast.link_key, Count.slot_start == Forecast.slot_start]
    came += [Count.slot_start >= span.begin, Count.slot_start < span.end]
    question = (
        select(
            Forecast.slot_start,
            Forecast.horizon,
            Forecast.model_version,
            Forecast.expected,
            Forecast.lower,
            Forecast.upper,
            Forecast.level,
            Forecast.method,
            Forecast.degraded_reason,
            Forecast.filled_lags,
            Forecast.issued_at,
            Count.count,
            Count.quality,
        )
        .outerjoin(Count, and_(*came))
        .where(Forecast.link_key == link_key, Forecast.slot_start >= span.begin, Forecast.slot_start < span.end)
        .order_by(Forecast.slot_start, Forecast.horizon, Forecast.model_version)
        .limit(limit)
    )
    if after is not None:
        question = question.where(place > tuple_(*after))
    if horizon is not None:
        question = question.where(Forecast.horizon == horizon)
    if model_version is not None:
        question = question.where(Forecast.model_version == model_version)
    rows: list[tuple[Any, ...]] = [tuple(row) for row in session.execute(question)]
    return [PastForecast(*row)._replace(method=METHODS[row[7]]) for row in rows]


def newest_forecast(session: Session, link_key: int) -> int | None:
    """Start of the newest slot that was forecast."""
    return newest_by_link(session, Forecast, [link_key]).get(link_key)
