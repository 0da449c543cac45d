"""Past forecasts, each with the realised count, a page at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from app.core.errors import CURSOR_RULE, worded
from app.core.slots import EPOCH
from app.core.times import SECONDS_A_DAY, instant_of, read_span
from app.counts.tables import QUALITIES
from app.forecasts.queries import newest_forecast, past_forecasts
from app.forecasts.schemas import PastForecastOut, PastForecasts
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
    newest = newest_forecast(session, link.link_key)
    span = read_span(begin, end, None if newest is None else newest + link.slot_seconds, SECONDS_A_DAY)
    if span is None:
        return PastForecasts(link_id=link_id, forecasts=[], next_cursor=None)
    after = tuple(int(part) for part in cursor.split(".")) if cursor else None
    found = past_forecasts(session, link.link_key, span, horizon, model_version, after, limit + 1)
    last = found[limit - 1][0] if len(found) > limit else None
    return PastForecasts(
        link_id=link_id,
        forecasts=[_shown(link, *row) for row in found[:limit]],
        next_cursor=None if last is None else f"{last.slot_start}.{last.horizon}.{last.model_version}",
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
