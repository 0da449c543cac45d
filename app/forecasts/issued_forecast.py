"""A link's forecast as it is stored and served, and why it may be worse than the evidence allows."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.forecasts.lag_windows import HORIZONS
from app.forecasts.profile_fallback import ForecastValues
from app.links.queries import PROFILE_WON, WITHDRAWN, LinkInfo

Array = NDArray[np.float64]

PROFILE, LAST_COUNT = "profile", "last_count"
DECIMALS = 3


class Degradation(StrEnum):
    """The kinds of reasons, by which Prometheus counts degraded forecasts."""

    NO_MODEL = "no_model"
    DAMAGED_MODEL = "damaged_model"
    GAPS = "gaps"
    NO_PROFILE = "no_profile"
    FAILED = "failed"
    STALE = "stale"
    OTHER = "other"


class Reason(NamedTuple):
    """Why a forecast is degraded: the kind, and the text that callers get, with names and numbers."""

    kind: Degradation
    text: str


NO_MODEL = Reason(Degradation.NO_MODEL, "the link has no trained model")
MODEL_WITHDRAWN = Reason(Degradation.NO_MODEL, "the link's trained model was withdrawn")
WITHOUT_MODEL = (None, NO_MODEL.text, MODEL_WITHDRAWN.text)  # reasons of a link that has no active model
NO_PROFILE = Reason(Degradation.NO_PROFILE, "there is no profile: its latest weeks have too few counts")


def reason_without_model(link: LinkInfo) -> Reason | None:
    """Return why a link without an active model is degraded; None where its profile won on held-out days."""
    return {PROFILE_WON: None, WITHDRAWN: MODEL_WITHDRAWN}.get(link.choice or "", NO_MODEL)


class IssuedForecast(NamedTuple):
    """A forecast of a link as it is stored and served, all horizons."""

    link: LinkInfo
    as_of: int  # Unix seconds of the newest slot known
    model_version: int  # 0 without a trained model
    method: str
    degraded_reason: str | None
    filled_lags: int
    level: float
    expected: list[float]
    lower: list[float | None]
    upper: list[float | None]
    usual: list[float | None]
    issued_at: int  # microseconds since 1970
    first_slot: int | None = None  # of horizon 1, where that is not the slot after ``as_of``
    degradation: Degradation | None = None  # kind of the reason; not stored

    def slots(self) -> range:
        """Return the starts of the slots that are forecast, by horizon."""
        seconds = self.link.slot_seconds
        first = self.as_of + seconds if self.first_slot is None else self.first_slot
        return range(first, first + len(self.expected) * seconds, seconds)


class ModelForecast(NamedTuple):
    """A forecast with the method that produced it and the reason for any fallback."""

    version: int
    method: str
    reason: Reason | None
    filled_lags: int
    level: float
    values: ForecastValues
    usual: Array | None


def issued_forecast(link: LinkInfo, newest: int, forecast: ModelForecast, issued_at: int) -> IssuedForecast:
    """Return a computed forecast as it is stored, rounded."""
    values, reason = forecast.values, forecast.reason
    return IssuedForecast(
        link,
        newest,
        forecast.version,
        forecast.method,
        None if reason is None else reason.text,
        forecast.filled_lags,
        forecast.level,
        _rounded(values.expected),
        _or_none(values.lower),
        _or_none(values.upper),
        _or_none(forecast.usual),
        issued_at,
        degradation=None if reason is None else reason.kind,
    )


def _rounded(values: Array) -> list[float]:
    return [round(value, DECIMALS) for value in values[:HORIZONS].tolist()]


def _or_none(values: Array | None) -> list[float | None]:
    return [None] * HORIZONS if values is None else [*_rounded(values)]
