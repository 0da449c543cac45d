"""Forecasts in the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import and_, or_, select, tuple_
from sqlalchemy.orm import Session

from app.counts.newest import newest_by_link
from app.counts.tables import Count
from app.forecasts.issue import Statement
from app.forecasts.tables import METHODS, Forecast
from app.forecasts.windows import HORIZONS
from app.links.queries import MOST_IN_A_QUERY, LinkInfo
from app.monthly_tables import ensure_months
from app.web.spans import Span

COLUMNS = (
    "link_key, slot_start, horizon, model_version, expected, lower, upper, level, usual, method, "
    "degraded_reason, filled_lags, issued_at"
)
_SAVE = f"INSERT INTO forecasts ({COLUMNS}) {{rows}} ON CONFLICT DO NOTHING"
_SQLITE = _SAVE.format(rows=f"VALUES ({', '.join('?' * 13)})")
_ARRAYS = (
    "SELECT * FROM unnest(%s::int[], %s::bigint[], %s::smallint[], %s::int[], %s::float8[], %s::float8[], "
    "%s::float8[], %s::float8[], %s::float8[], %s::smallint[], %s::text[], %s::smallint[], %s::bigint[])"
)
_POSTGRESQL = _SAVE.format(rows=_ARRAYS)


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


def save_forecasts(session: Session, statements: Iterable[Statement]) -> bool:
    """Store forecasts and tell whether all were new; one issued already for its slot and model stays as it was."""
    rows = [_row(statement, horizon) for statement in statements for horizon in range(1, HORIZONS + 1)]
    if not rows:
        return True
    rows.sort(key=itemgetter(slice(4)))  # processes that issue the same in another order would wait for each other
    ensure_months(session, Forecast.__tablename__, {slot for _, slot, *_ in rows})
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        saved = connection.exec_driver_sql(_POSTGRESQL, tuple(list(column) for column in zip(*rows, strict=True)))
    else:
        saved = connection.exec_driver_sql(_SQLITE, rows)
    return saved.rowcount == len(rows)


def _row(said: Statement, horizon: int) -> tuple[int, int, *tuple[object, ...]]:
    h = horizon - 1
    return (
        said.link.link_key,
        said.slot(horizon),
        horizon,
        said.model_version,
        said.expected[h],
        said.lower[h],
        said.upper[h],
        said.level,
        said.usual[h],
        METHODS.index(said.method),
        said.degraded_reason,
        said.filled_lags,
        said.issued_at,
    )


def stored_statements(
    session: Session, links: Sequence[LinkInfo], as_of: dict[int, int]
) -> dict[tuple[int, int], Statement]:
    """Give what was issued from the slots ``as_of``, by link key and model version."""
    alike: dict[tuple[int, int], list[LinkInfo]] = {}
    for link in links:
        alike.setdefault((as_of[link.link_key], link.slot_seconds), []).append(link)
    found: dict[tuple[int, int], Statement] = {}
    for (newest, seconds), group in alike.items():
        for begin in range(0, len(group), MOST_IN_A_QUERY):
            found |= _statements(session, group[begin : begin + MOST_IN_A_QUERY], newest, seconds)
    return found


def _statements(
    session: Session, links: Sequence[LinkInfo], newest: int, seconds: int
) -> dict[tuple[int, int], Statement]:
    ahead = [
        and_(Forecast.slot_start == newest + horizon * seconds, Forecast.horizon == horizon)
        for horizon in range(1, HORIZONS + 1)
    ]
    question = (
        select(Forecast.__table__)
        .where(Forecast.link_key.in_([link.link_key for link in links]))
        .where(or_(*ahead))
        .order_by(Forecast.link_key, Forecast.model_version, Forecast.horizon)
    )
    parts: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for row in session.execute(question):
        parts.setdefault((row[0], row[3]), []).append(tuple(row))
    by_key = {link.link_key: link for link in links}
    return {key: statement_of(by_key[key[0]], newest, rows) for key, rows in parts.items() if len(rows) == HORIZONS}


def statement_of(link: LinkInfo, newest: int, rows: Sequence[tuple[Any, ...]]) -> Statement:
    """Give rows of all horizons, nearest first, as the statement they were made of."""
    columns = list(zip(*rows, strict=True))
    _, _, _, versions, expected, lower, upper, level, usual, methods, reasons, filled, issued_at = columns
    return Statement(
        link,
        newest,
        versions[0],
        METHODS[methods[0]],
        reasons[0],
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
    """Give forecasts of the slots in a span, with the counts that came, in order of slot, horizon and version.

    ``only`` is a horizon and a version to keep to; ``after`` are slot, horizon and version of the
    last one already given. Of several for one slot and horizon, by different models, all are given.
    """
    place = tuple_(Forecast.slot_start, Forecast.horizon, Forecast.model_version)
    horizon, model_version = only
    # The span is said for both: PostgreSQL would look for counts in every month, in which there are none.
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
