"""Past forecasts and weights of experts, each with the realised count, a page at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.core.errors import CURSOR_RULE, worded
from app.core.slots import EPOCH
from app.core.times import SECONDS_A_DAY, instant_of, read_span
from app.counts.tables import QUALITIES
from app.forecasts.issued_forecast import by_expert
from app.forecasts.queries import last_issued, newest_forecast, past_forecasts
from app.forecasts.schemas import ExpertHistory, ExpertWeights, PastForecastOut, PastForecasts
from app.forecasts.tables import METHODS, Forecast
from app.links.queries import LinkInfo, link_or_404

CURSOR = worded(
    r"^[0-9]{1,11}\.[0-9]{1,4}\.[0-9]{1,10}$", CURSOR_RULE
)  # slot, horizon and version of the last one returned


def read_history(
    session: Session,
    link_id: str,
    begin: datetime | None = None,
    end: datetime | None = None,
    *,
    horizon: int | None = None,
    model_version: int | None = None,
    limit: int,
    cursor: str | None = None,
) -> PastForecasts:
    """Return a page of a link's past forecasts; by default the day up to the newest slot forecast."""
    link = link_or_404(session, link_id)
    page = _read_page(session, link, begin, end, horizon, model_version, limit, cursor)
    return PastForecasts(
        link_id=link_id, forecasts=[_shown(link, *row) for row in page.rows], next_cursor=page.next_cursor
    )


def read_experts(
    session: Session,
    link_id: str,
    begin: datetime | None = None,
    end: datetime | None = None,
    *,
    horizon: int,
    limit: int,
    cursor: str | None = None,
) -> ExpertHistory:
    """Return a page of the weights of a link's experts; by default the day up to the newest slot forecast."""
    link = link_or_404(session, link_id)
    page = _read_page(session, link, begin, end, horizon, None, limit, cursor, by_experts=True)
    slots = [_shown_experts(link, forecast, count) for forecast, count, _ in last_issued(page.rows)]
    return ExpertHistory(link_id=link_id, horizon=horizon, slots=slots, next_cursor=page.next_cursor)


class _Page(NamedTuple):
    """Forecasts with counts and their qualities, and the cursor of the next page."""

    rows: list[tuple[Forecast, int | None, int | None]]
    next_cursor: str | None


def _read_page(
    session: Session,
    link: LinkInfo,
    begin: datetime | None,
    end: datetime | None,
    horizon: int | None,
    model_version: int | None,
    limit: int,
    cursor: str | None,
    *,
    by_experts: bool = False,
) -> _Page:
    newest = newest_forecast(session, link.link_key)
    span = read_span(begin, end, None if newest is None else newest + link.slot_seconds, SECONDS_A_DAY)
    if span is None:
        return _Page([], None)
    after = tuple(int(part) for part in cursor.split(".")) if cursor else None
    found = past_forecasts(
        session, link.link_key, span, horizon, model_version, after, limit + 1, by_experts=by_experts
    )
    last = found[limit - 1][0] if len(found) > limit else None
    next_cursor = None if last is None else f"{last.slot_start}.{last.horizon}.{last.model_version}"
    return _Page(found[:limit], next_cursor)


def _shown_experts(link: LinkInfo, forecast: Forecast, count: int | None) -> ExpertWeights:
    weights, expected = by_expert(forecast.experts or b"")
    return ExpertWeights(
        slot_start=instant_of(forecast.slot_start),
        as_of_slot=instant_of(forecast.slot_start - forecast.horizon * link.slot_seconds),
        expected_count=forecast.expected,
        count=count,
        weights=weights,
        expected_counts=expected,
    )


def _shown(link: LinkInfo, forecast: Forecast, count: int | None, quality: int | None) -> PastForecastOut:
    return PastForecastOut(
        slot_start=instant_of(forecast.slot_start),
        horizon=forecast.horizon,
        expected_count=forecast.expected,
        lower=forecast.lower,
        upper=forecast.upper,
        level=forecast.level,
        count=count,
        quality=None if quality is None else QUALITIES[quality],
        realised_error=None if count is None else forecast.expected - count,
        as_of_slot=instant_of(forecast.slot_start - forecast.horizon * link.slot_seconds),
        issued_at=EPOCH + timedelta(microseconds=forecast.issued_at),
        method=METHODS[forecast.method],
        degraded_reason=forecast.degraded_reason,
        filled_lags=forecast.filled_lags,
        model_version=forecast.model_version or None,
    )
