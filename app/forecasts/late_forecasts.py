"""Forecasts of a link whose counts stopped coming: the slots from now on, by its profile.

They are computed when they are read and are never stored. What they are computed from is kept with the link's
cached forecast, so that the next slot needs no database.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.counts.series import LinkSeries
from app.forecasts.compute import Forecaster
from app.forecasts.issued_forecast import (
    LAST_COUNT,
    PROFILE,
    Degradation,
    IssuedForecast,
    ModelForecast,
    Reason,
    issued_forecast,
)
from app.forecasts.lag_windows import HORIZONS
from app.forecasts.profile_fallback import LEVEL, ForecastValues, LinkProfile, Wanted, last_count
from app.registry.queries import active_models


class Fallback(NamedTuple):
    """What answers for a link without recent counts: its profile, or its last count where it has no profile."""

    version: int  # of the trained model that the profile belongs to; 0 for none
    usual: LinkProfile | None
    last: float = 0.0

    def forecast(self, issued: IssuedForecast, now: int, minutes: int) -> IssuedForecast:
        """Return the forecasts that replace an issued one, from the slot that contains now on."""
        link = issued.link
        first = now - now % link.slot_seconds
        reason = Reason(Degradation.STALE, f"no count has come for more than {minutes} minutes")
        if self.usual is None:
            # Without an interval: errors of the last count are known for the next few slots only.
            forecast = ModelForecast(
                0, LAST_COUNT, reason, 0, LEVEL, ForecastValues.constant(self.last, HORIZONS), None
            )
        else:
            profile = self.usual.at(link, first, HORIZONS)
            forecast = ModelForecast(self.version, PROFILE, reason, 0, LEVEL, profile, profile.expected)
        return issued_forecast(link, issued.as_of, forecast, time.time_ns() // 1000)._replace(first_slot=first)


def read_fallback(session: Session, forecaster: Forecaster, issued: IssuedForecast) -> Fallback:
    """Read or learn the profile of a link."""
    link = issued.link
    loaded, _ = forecaster.choose_model(session, link, active_models(session, [link.link_key]).get(link.link_key))
    profile, version = (loaded.model.profile, loaded.version) if loaded else (None, 0)
    usual = forecaster.usual.of(session, Wanted(link, issued.as_of, profile, version))
    if isinstance(usual, LinkSeries):
        return Fallback(0, None, float(last_count(usual, issued.as_of, 1).expected[0]))
    return Fallback(version, usual)


def fallback_in_memory(forecaster: Forecaster, issued: IssuedForecast) -> Fallback | None:
    """Return what memory knows of a link while the database is unreachable; None where that is nothing."""
    link, version = issued.link, issued.model_version
    usual = forecaster.usual.in_memory(link, issued.as_of, version)
    if usual is None and (loaded := forecaster.models.in_memory(link.link_key, version)) is not None:
        usual = LinkProfile(loaded.model.profile, None)
    if usual is not None:
        return Fallback(version, usual)
    return Fallback(0, None, issued.expected[0]) if issued.method == LAST_COUNT else None
