"""Compare forecasts with the counts that came, within the database: only sums leave it, never a row of a slot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    CTE,
    JSON,
    BigInteger,
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
    literal,
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
class Wanted:
    """Which forecasts are compared with the counts of a span.

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
    session: Session, link: LinkInfo, pieces: Sequence[Piece], wanted: Wanted, floor: int, by: tuple[str, ...] = ()
) -> SumsByKey:
    """Compute the sums of one link, by the parts that its pieces belong to, by horizon or by model version."""
    if not pieces:
        return {}
    backs = [piece.week_before for piece in pieces if piece.week_before is not None] or [0]
    week = Span(wanted.span.begin + min(backs), wanted.span.end + max(backs))
    of_link = literal(link.link_key).label("link_key"), literal(link.slot_minutes).label("slot_minutes")
    given = select(*of_link, *_columns(pieces, _on_postgresql(session))).cte("pieces")
    return _read(session, given, wanted, week, floor, by)


def network_sums(session: Session, wanted: Wanted, floor: int, by: tuple[str, ...] = (PART,)) -> SumsByKey:
    """Compute the sums of all links, by link key and perhaps by model version; without those of last week."""
    span = [literal(second, BigInteger).label(name) for name, second in zip(("begin", "end"), wanted.span, strict=True)]
    links = select(Link.link_key.label(PART), Link.link_key, Link.slot_minutes, *span).cte("pieces")
    return _read(session, links, wanted, None, floor, by)


def _columns(pieces: Sequence[Piece], postgresql: bool) -> list[ColumnElement[Any]]:
    """Return the columns of a table of pieces, which are one parameter of the query, as JSON."""
    given = bindparam(None, json.dumps([piece._asdict() for piece in pieces]), type_=Text, unique=True)
    if postgresql:
        typed = [column(name, BigInteger) for name in Piece._fields]
        return [*func.json_to_recordset(cast(given, JSON)).table_valued(*typed).render_derived(with_types=True).c]
    piece = func.json_each(given).table_valued("value").c.value
    return [func.json_extract(piece, f"$.{name}", type_=BigInteger).label(name) for name in Piece._fields]


def _on_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def _read(
    session: Session, pieces: CTE, wanted: Wanted, week: Span | None, floor: int, by: tuple[str, ...]
) -> SumsByKey:
    postgresql = _on_postgresql(session)
    forecast = _forecasts_of_piece(pieces, wanted) if postgresql else Forecast
    keys = [getattr(forecast, name) for name in by if name != PART]
    sums = [sum_.label(name) for name, sum_ in _sums(pieces, forecast, week, floor).items()]
    in_piece = and_(
        Count.link_key == pieces.c.link_key,
        Count.slot_start >= pieces.c.begin,
        Count.slot_start < pieces.c.end,
        *(_bounds(Count, pieces, wanted.span) if postgresql else []),
    )
    of_count = [forecast.link_key == Count.link_key, forecast.slot_start == Count.slot_start]
    of_count += [] if postgresql else _forecast_conditions(wanted)
    joins: list[tuple[Any, ColumnElement[bool]]] = [(forecast, and_(*of_count))]
    if week is not None:
        joins.append((_WeekBefore, _week_before(pieces, week, postgresql)))
    if postgresql:
        # Piece by piece: joined all at once, PostgreSQL would read whole months and sort or hash them. A month that
        # has no statistics yet seems to have few rows, for which it would compare every count with every forecast.
        session.execute(text("SET LOCAL enable_nestloop = off"))
        inner = _joined(select(*keys, *sums).select_from(Count), joins).where(in_piece).group_by(*keys)
        of_piece = inner.correlate(pieces).lateral("sums")
        given = [pieces.c.part] if PART in by else []
        question = select(*given, *of_piece.c).select_from(pieces).join(of_piece, true())
    else:
        # Outer joins also settle the order of the loops, which SQLite would guess wrong without statistics.
        keys = ([pieces.c.part] if PART in by else []) + keys
        question = _joined(select(*keys, *sums).select_from(pieces), [(Count, in_piece), *joins]).group_by(*keys)
    found: SumsByKey = {}
    for row in session.connection().execute(question):
        key, numbers = tuple(row[: len(by)]), ErrorSums(*(number or 0 for number in row[len(by) :]))
        if None not in key:  # counts without a forecast have neither horizon nor version
            found[key] = total((found[key], numbers)) if key in found else numbers
    return found


def _joined(question: Select[Any], joins: Sequence[tuple[Any, ColumnElement[bool]]]) -> Select[Any]:
    for table, condition in joins:
        question = question.outerjoin(table, condition)
    return question


def _forecasts_of_piece(pieces: CTE, wanted: Wanted) -> type[Forecast]:
    """Return a subquery of the wanted forecasts of a piece, for PostgreSQL.

    It reads them once and sorts those of a slot by their time of issue. To look up a later forecast for each would
    read them twice, and rows of one link are on as many pages.
    """
    question = select(Forecast).where(*_bounds(Forecast, pieces, wanted.span), *_horizon_and_version(wanted))
    if wanted.one_for_each_count:
        slot = Forecast.slot_start, Forecast.horizon
        question = question.ext(distinct_on(*slot))
        question = question.order_by(*slot, Forecast.issued_at.desc(), Forecast.model_version.desc())
    return aliased(Forecast, question.correlate(pieces).subquery("wanted_forecasts"))


def _forecast_conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    """Return the conditions that a wanted forecast meets, for SQLite: a look-up by key is faster there than a sort."""
    if not wanted.one_for_each_count:
        return _horizon_and_version(wanted)
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
    return [*_horizon_and_version(wanted), ~exists().where(later).correlate(Forecast)]


def _horizon_and_version(wanted: Wanted) -> list[ColumnElement[bool]]:
    """Return the conditions that a forecast has the wanted horizon and version, if one is given."""
    given = (Forecast.horizon, wanted.horizon), (Forecast.model_version, wanted.model_version)
    return [column == value for column, value in given if value is not None]


def _week_before(pieces: CTE, week: Span, postgresql: bool) -> ColumnElement[bool]:
    return and_(
        _WeekBefore.link_key == Count.link_key,
        _WeekBefore.slot_start == Count.slot_start + pieces.c.week_before,
        *(_bounds(_WeekBefore, pieces, week, pieces.c.week_before) if postgresql else []),
    )


def _bounds(
    table: type[Count] | type[Forecast], pieces: CTE, span: Span, away: ColumnElement[int] | None = None
) -> list[ColumnElement[bool]]:
    """Return bounds that follow from the joins, by which PostgreSQL reads no more than the rows of a piece.

    Those of the span are known before it plans, and leave out all other months. SQLite needs none: it goes to
    each row by its key, and would take a range for better than that.
    """
    begin, end = (pieces.c.begin, pieces.c.end) if away is None else (pieces.c.begin + away, pieces.c.end + away)
    slots = table.slot_start
    return [table.link_key == pieces.c.link_key, slots >= begin, slots < end, slots >= span.begin, slots < span.end]


def _sums(pieces: CTE, forecast: type[Forecast], week: Span | None, floor: int) -> dict[str, ColumnElement[Any]]:
    """Return the expression of each sum; SQL leaves out what is NULL, such as the error of a missing forecast."""
    count = type_coerce(Count.count, Double)  # or a division by it would be one of PostgreSQL's slow decimal numbers
    expected = forecast.expected
    error = expected - count
    relative = and_(expected.is_not(None), count >= max(floor, 1))
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
    if week is not None:
        last_week = cast(_WeekBefore.count, Double)  # a square may exceed the whole numbers of 4 bytes
        sums["last_week_squared"] = func.sum((last_week - count) * (last_week - count)).filter(expected.is_not(None))
        sums["squared_beside_last_week"] = func.sum(error * error).filter(last_week.is_not(None))
    return sums
