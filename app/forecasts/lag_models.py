"""Forecasts of many links at once by trained models of single links, which use lag windows."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from sqlalchemy.orm import Session

from app.counts.queries import counts_between
from app.forecasts.issued_forecast import HORIZONS, Array, Degradation, ForecastRequest, ModelForecast, Reason
from app.forecasts.profile_fallback import link_calendar
from model.link_model.forecast_each import forecast_each
from model.link_model.lag_window import LatestWindow, TooManyGaps
from model.link_model.trained_model import TrainedModel

log = logging.getLogger("flowcast.forecasts")


def forecast_from_lags(session: Session, requests: Sequence[ForecastRequest]) -> dict[int, ModelForecast | Reason]:
    """Return the forecasts of links with a lag model, by link key, or the reasons why there is none."""
    wanted = [(one, one.loaded.model) for one in requests if one.loaded and isinstance(one.loaded.model, TrainedModel)]
    series = _read_series(session, wanted)
    ready: list[tuple[ForecastRequest, TrainedModel, Array, LatestWindow]] = []
    found: dict[int, ModelForecast | Reason] = {}
    for request, model in wanted:
        try:
            calendar = link_calendar(request.link, request.as_of + request.link.slot_seconds, HORIZONS)
            profile = model.profile.at(calendar.weekday, calendar.slot_of_day)
            ready.append((request, model, profile, _latest_window(request, model, series[request.link.link_key])))
        except TooManyGaps as gaps:
            found[request.link.link_key] = Reason(Degradation.GAPS, str(gaps))
        except Exception as problem:
            log.exception("a link's window failed", extra={"link": request.link.link_id})
            found[request.link.link_key] = Reason(Degradation.FAILED, f"its window failed: {type(problem).__name__}")
    forecasts = forecast_each([model for _, model, _, _ in ready], [latest.window for *_, latest in ready])
    for (request, model, profile, latest), forecast in zip(ready, forecasts, strict=True):
        assert model.bands is not None
        found[request.link.link_key] = ModelForecast(
            model.algorithm,
            request.version,
            model.bands.level,
            forecast.expected[0],
            forecast.lower[0],
            forecast.upper[0],
            profile,
            latest.filled_lags,
            request.reason,
        )
    return found


def lag_window(session: Session, request: ForecastRequest, model: TrainedModel) -> Array:
    """Return the lag window of one link, (1, d); raise ``TooManyGaps`` where too many counts are missing."""
    series = _read_series(session, [(request, model)])
    return _latest_window(request, model, series[request.link.link_key]).window


def _read_series(session: Session, wanted: Sequence[tuple[ForecastRequest, TrainedModel]]) -> dict[int, Array]:
    """Read the latest counts as far as each model looks back, by link key; NaN where there is none."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for request, model in wanted:
        reach = max(model.window.lags)
        alike.setdefault((request.as_of, request.link.slot_seconds, reach), []).append(request.link.link_key)
    found: dict[int, Array] = {}
    for (as_of, seconds, reach), keys in alike.items():
        first = as_of - (reach - 1) * seconds
        rows, ordered = counts_between(session, keys, first, as_of), np.sort(keys)
        table = np.full((len(keys), reach), np.nan)
        table[np.searchsorted(ordered, rows[:, 0]), (rows[:, 1] - first) // seconds] = rows[:, 2]
        found.update(zip(ordered.tolist(), table, strict=True))
    return found


def _latest_window(request: ForecastRequest, model: TrainedModel, series: Array) -> LatestWindow:
    """Return the lag window, (1, d), its gaps filled by the profile, and how many were."""
    if not np.isnan(series).any():
        return model.window.latest(series)
    calendar = link_calendar(request.link, request.as_of - (len(series) - 1) * request.link.slot_seconds, len(series))
    return model.window.latest(series, fill=model.profile.at(calendar.weekday, calendar.slot_of_day))
