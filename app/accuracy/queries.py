"""Compare forecasts with realised counts within the database, which returns sums only and no row of a slot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    JSON,
    BigInteger,
    BindParameter,
    ColumnElement,
    Double,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    exists,
    func,
    or_,
    select,
    text,
    true,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from app.accuracy.breakdown import Piece
from app.accuracy.error_sums import ErrorSums, total
from app.core.times import Span
from app.counts.tables import Count
from app.forecasts.tables import Forecast
from app.links.queries import LinkInfo
from app.links.tables import Link
from model.error_measures import GEH_LIMIT

PART, MODEL_VERSION = "part", "model_version"
_Later = aliased(Forecast, name="later_forecasts")
_WeekBefore = aliased(Count, name="counts_week_before")

SumsByKey = dict[tuple[int, ...], ErrorSums]


@dataclass(frozen=True)
class ForecastFilter:
    """The forecasts to compare with the counts of a span.

    ``horizon`` and ``model_version`` are None for all. ``as_served`` keeps one forecast for each count and
    horizon: the one issued last, of those issued at the same time the one of the highest version.
    """

    span: Span
    horizon: int | None
    model_version: int | None = None
    as_served: bool = True

    @property
    def one_for_each_count(self) -> bool:
        """Return whether later forecasts replace earlier ones; a version has only one of each slot and horizon."""
        return self.as_served and self.model_version is None


def link_sums(
    session: Session,
    link: LinkInfo,
    pieces: Sequence[Piece],
    wanted: ForecastFilter,
    floor: int,
    by: tuple[str, ...] = (),
) -> SumsByKey:
    """Compute the sums of one link, by the parts that its pieces belong to, by horizon or by model version."""
    if not pieces:
        return {}
    backs = [piece.week_before for piece in pieces if piece.week_before is not None] or [0]
    of_link = {
        "link_key": link.link_key,
        "slot_minutes": link.slot_minutes,
        "pieces": json.dumps([piece._asdict() for piece in pieces]),
        "week_begin": wanted.span.begin + min(backs),
        "week_end": wanted.span.end + max(backs),
    }
    return _read(session, wanted, floor, by, of_link)


def network_sums(session: Session, wanted: ForecastFilter, floor: int, by: tuple[str, ...] = (PART,)) -> SumsByKey:
    """Compute the sums of all links, by link key and perhaps by model version; without those of last week."""
    return _read(session, wanted, floor, by, {})


def _read(
    session: Session, wanted: ForecastFilter, floor: int, by: tuple[str, ...], of_link: dict[str, Any]
) -> SumsByKey:
    postgresql = session.get_bind().dialect.name == "postgresql"
    if postgresql:
        # A month that has no statistics yet seems to have few rows, for which PostgreSQL would compare every count
        # with every forecast.
        session.execute(text("SET LOCAL enable_nestloop = off"))
    every = wanted.horizon is None, wanted.model_version is None
    statement = _statement(postgresql, bool(of_link), by, *every, wanted.one_for_each_count)
    given = {"horizon": wanted.horizon, "model_version": wanted.model_version, "floor": max(floor, 1)}
    span = {"span_begin": wanted.span.begin, "span_end": wanted.span.end}
    found: SumsByKey = {}
    for row in session.connection().execute(statement, given | span | of_link):
        key, numbers = tuple(row[: len(by)]), ErrorSums(*(number or 0 for number in row[len(by) :]))
        if None not in key:  # counts without a forecast have neither horizon nor version
            found[key] = total((found[key], numbers)) if key in found else numbers
    return found


@cache  # to build a statement takes longer than to execute it for one link
def _statement(
    postgresql: bool, of_link: bool, by: tuple[str, ...], every_horizon: bool, every_version: bool, as_served: bool
) -> Select[Any]:
    """Return the statement that computes sums; its parameters are given when it is executed."""
    pieces = _pieces_of_link(postgresql) if of_link else _pieces_of_network()
    of_wanted = [] if every_horizon else [Forecast.horizon == _number("horizon")]
    of_wanted += [] if every_version else [Forecast.model_version == _number("model_version")]
    forecast = _forecasts_of_piece(pieces, of_wanted, as_served) if postgresql else Forecast
    keys = [getattr(forecast, name) for name in by if name != PART]
    sums = [sum_.label(name) for name, sum_ in _sums(pieces, forecast, of_link).items()]
    in_piece = and_(
        Count.link_key == pieces.c.link_key,
        Count.slot_start >= pieces.c.begin,
        Count.slot_start < pieces.c.end,
        *(_bounds(Count, pieces, "span") if postgresql else []),
    )
    of_count = [forecast.link_key == Count.link_key, forecast.slot_start == Count.slot_start]
    if not postgresql:
        of_count += [*of_wanted, _no_later_forecast()] if as_served else of_wanted
    joins: list[tuple[Any, ColumnElement[bool]]] = [(forecast, and_(*of_count))]
    if of_link:
        joins.append((_WeekBefore, _week_before(pieces, postgresql)))
    parts = [pieces.c.part] if PART in by else []
    if postgresql:
        # Piece by piece: joined all at once, PostgreSQL would read whole months and sort or hash them.
        inner = _joined(select(*keys, *sums).select_from(Count), joins).where(in_piece).group_by(*keys)
        of_piece = inner.correlate(pieces).lateral("sums")
        return select(*parts, *of_piece.c).select_from(pieces).join(of_piece, true())
    # Outer joins also settle the order of the loops, which SQLite would guess wrong without statistics.
    return _joined(select(*parts, *keys, *sums).select_from(pieces), [(Count, in_piece), *joins]).group_by(
        *parts, *keys
    )


def _number(name: str) -> BindParameter[int]:
    return bindparam(name, type_=BigInteger)


def _pieces_of_network() -> CTE:
    """Return a table with one piece for each link: the span."""
    span = _number("span_begin").label("begin"), _number("span_end").label("end")
    return select(Link.link_key.label(PART), Link.link_key, Link.slot_minutes, *span).cte("pieces")


def _pieces_of_link(postgresql: bool) -> CTE:
    """Return a table of the pieces of one link, which are one parameter of the statement, as JSON."""
    link = _number("link_key").label("link_key"), _number("slot_minutes").label("slot_minutes")
    given = bindparam("pieces", type_=Text)
    if postgresql:
        typed = [column(name, BigInteger) for name in Piece._fields]
        pieces = func.json_to_recordset(cast(given, JSON)).table_valued(*typed).render_derived(with_types=True)
        return select(*link, *pieces.c).cte("pieces")
    piece = func.json_each(given).table_valued("value").c.value
    fields = [func.json_extract(piece, f"$.{name}", type_=BigInteger).label(name) for name in Piece._fields]
    return select(*link, *fields).cte("pieces")


def _joined(question: Select[Any], joins: Sequence[tuple[Any, ColumnElement[bool]]]) -> Select[Any]:
    for table, condition in joins:
        question = question.outerjoin(table, condition)
    return question


def _forecasts_of_piece(pieces: CTE, of_wanted: Sequence[ColumnElement[bool]], as_served: bool) -> type[Forecast]:
    """Return a subquery of the wanted forecasts of a piece, for PostgreSQL.

    It reads them once and sorts those of a slot by their time of issue. To look up a later forecast for each would
    read them twice, and rows of one link are on as many pages.
    """
    question = select(Forecast).where(*_bounds(Forecast, pieces, "span"), *of_wanted)
    if as_served:
        slot = Forecast.slot_start, Forecast.horizon
        question = question.ext(distinct_on(*slot))
        question = question.order_by(*slot, Forecast.issued_at.desc(), Forecast.model_version.desc())
    return aliased(Forecast, question.correlate(pieces).subquery("wanted_forecasts"))


def _no_later_forecast() -> ColumnElement[bool]:
    """Return the condition that a forecast is the last of its slot, for SQLite: a look-up is faster than a sort."""
    later = and_(
        _Later.link_key == Forecast.link_key,
        _Later.slot_start == Forecast.slot_start,
        _Later.horizon == Forecast.horizon,
        _Later.model_version != Forecast.model_version,
        or_(
            _Later.issued_at > Forecast.issued_at,
            and_(_Later.issued_at == Forecast.issued_at, _Later.model_version > Forecast.model_version),
        ),
    )
    return ~exists().where(later).correlate(Forecast)


def _week_before(pieces: CTE, postgresql: bool) -> ColumnElement[bool]:
    return and_(
        _WeekBefore.link_key == Count.link_key,
        _WeekBefore.slot_start == Count.slot_start + pieces.c.week_before,
        *(_bounds(_WeekBefore, pieces, "week", pieces.c.week_before) if postgresql else []),
    )


def _bounds(
    table: type[Count] | type[Forecast], pieces: CTE, span: str, shift: ColumnElement[int] | None = None
) -> list[ColumnElement[bool]]:
    """Return bounds that follow from the joins, by which PostgreSQL reads no more than the rows of a piece.

    Those of the span are known when the query is planned, and leave out all other months. SQLite needs none: it reads
    each row by its key, and with a range it would choose a slower plan.
    """
    begin, end = (pieces.c.begin, pieces.c.end) if shift is None else (pieces.c.begin + shift, pieces.c.end + shift)
    in_piece = [table.link_key == pieces.c.link_key, table.slot_start >= begin, table.slot_start < end]
    return [*in_piece, table.slot_start >= _number(f"{span}_begin"), table.slot_start < _number(f"{span}_end")]


def _sums(pieces: CTE, forecast: type[Forecast], of_link: bool) -> dict[str, ColumnElement[Any]]:
    """Return the expression of each sum; SQL leaves out what is NULL, such as the error of a missing forecast."""
    count = type_coerce(Count.count, Double)  # or a division by it would be one of PostgreSQL's slow decimal numbers
    expected = forecast.expected
    error = expected - count
    relative = and_(expected.is_not(None), count >= _number("floor"))
    # Of hourly flows; a negative forecast is one of no flow. Both cases are written out because SQLite computes an
    # expression as often as it occurs.
    geh_squared = case(
        (expected < 0, 120.0 * func.nullif(count, 0.0, type_=Double) / pieces.c.slot_minutes),
        else_=120.0 * error * error / (func.nullif(expected + count, 0.0, type_=Double) * pieces.c.slot_minutes),
    )
    sums: dict[str, ColumnElement[Any]] = {
        "n_counts": func.count(count),
        "n_used": func.count(expected),
        "counted": func.sum(Count.count).filter(expected.is_not(None)),
        "squared": func.sum(error * error),
        "absolute": func.sum(func.abs(error)),
        "signed": func.sum(error),
        "n_relative": func.count().filter(relative),
        "relative": func.sum(func.abs(error) / count).filter(relative),
        "n_geh": func.count(expected).filter(or_(expected > 0, count > 0)),
        "geh": func.sum(func.sqrt(geh_squared)),
        "n_geh_passed": func.count().filter(geh_squared < GEH_LIMIT**2),
        "n_intervals": func.count(forecast.lower + forecast.upper),
        "n_covered": func.count().filter(count.between(forecast.lower, forecast.upper)),
        "profile_squared": func.sum((forecast.usual - count) * (forecast.usual - count)),
        "squared_beside_profile": func.sum(error * error).filter(forecast.usual.is_not(None)),
    }
    if of_link:
        last_week = cast(_WeekBefore.count, Double)  # a square may exceed the whole numbers of 4 bytes
        sums["last_week_squared"] = func.sum((last_week - count) * (last_week - count)).filter(expected.is_not(None))
        sums["squared_beside_last_week"] = func.sum(error * error).filter(last_week.is_not(None))
    return sums
