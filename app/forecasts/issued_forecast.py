"""A link's forecast as it is requested, as a model computes it, and as it is stored, served and written as JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from app.links.queries import ENSEMBLE as BY_ENSEMBLE
from app.links.queries import PROFILE_WON, WITHDRAWN, LinkInfo
from app.registry.loaded_models import LoadedModel
from model.aggregation.experts import EXPERT_NAMES

Array = NDArray[np.float64]
Document = dict[str, Any]

HORIZONS = 4  # slots ahead that are served
PROFILE, LAST_COUNT, ENSEMBLE = "profile", "last_count", "ENSEMBLE"
DECIMALS = 3
WEIGHT_DECIMALS = 6
PACKED = np.dtype("<f4")  # single precision, which has seven digits


class Degradation(StrEnum):
    """The kinds of reasons for a degraded forecast, which are labels in Prometheus."""

    NO_MODEL = "no_model"
    DAMAGED_MODEL = "damaged_model"
    GAPS = "gaps"
    NO_PROFILE = "no_profile"
    FAILED = "failed"
    STALE = "stale"
    OTHER = "other"


class Reason(NamedTuple):
    """The reason for a degraded forecast: its kind, and the text in responses, with names and numbers."""

    kind: Degradation
    text: str


NO_MODEL = Reason(Degradation.NO_MODEL, "the link has no trained model")
MODEL_WITHDRAWN = Reason(Degradation.NO_MODEL, "the link's trained model was withdrawn")
NO_PROFILE = Reason(Degradation.NO_PROFILE, "there is no profile: its latest weeks have too few counts")


def reason_without_model(link: LinkInfo) -> Reason | None:
    """Return why a link without an active model is degraded; None where no model was better on held-out days."""
    return {PROFILE_WON: None, BY_ENSEMBLE: None, WITHDRAWN: MODEL_WITHDRAWN}.get(link.choice or "", NO_MODEL)


class ForecastRequest(NamedTuple):
    """A link to forecast, with the model to use, and the reason if that is not the active one."""

    link: LinkInfo
    as_of: int  # Unix seconds of the newest slot known
    loaded: LoadedModel | None = None
    reason: Reason | None = None

    @property
    def version(self) -> int:
        """Return the version of the model; 0 without one."""
        return self.loaded.version if self.loaded else 0


class ExpertForecasts(NamedTuple):
    """What an aggregate was made of, packed."""

    by_horizon: tuple[bytes, ...]  # weights and forecasts of the experts, as in the column ``forecasts.experts``
    factors: bytes | None = None  # of the intervals, (n_horizons, 2, n_levels); None where they are not known


def pack_experts(weights: Array, expected: Array) -> tuple[bytes, ...]:
    """Pack the weights and forecasts of experts, (n_horizons, n_experts) each, horizon by horizon."""
    return tuple(rows.tobytes() for rows in np.stack([weights, expected], axis=1).astype(PACKED))


def by_expert(packed: bytes) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return the weights and the forecasts of experts at one horizon, by name, rounded."""
    weights, expected = np.frombuffer(packed, PACKED).astype(np.float64).reshape(2, -1).tolist()
    shown = [None if math.isnan(count) else round(count, DECIMALS) for count in expected]
    return (
        dict(zip(EXPERT_NAMES, (round(weight, WEIGHT_DECIMALS) for weight in weights), strict=False)),
        dict(zip(EXPERT_NAMES, shown, strict=False)),  # those that were there when it was issued
    )


class StateUpdate(NamedTuple):
    """The state of a link's aggregation to be stored with its forecast, if it is still as it was read."""

    as_of: int
    state: bytes
    revision: int  # as it was read; 0 where there was none


class ModelForecast(NamedTuple):
    """The expected counts of a link's next slots by one method; intervals are None where too few errors are known."""

    method: str
    version: int  # of the trained model; 0 without one
    level: float
    expected: Array
    lower: Array | None
    upper: Array | None
    profile: Array | None  # of the same slots
    filled_lags: int = 0
    reason: Reason | None = None
    experts: ExpertForecasts | None = None


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
    profile: list[float | None]
    issued_at: int  # microseconds since 1970
    first_slot: int | None = None  # of horizon 1, where that is not the slot after ``as_of``
    degradation: Degradation | None = None  # kind of the reason; not stored
    experts: ExpertForecasts | None = None  # of an aggregate
    update: StateUpdate | None = None  # until it is stored

    def slots(self) -> range:
        """Return the starts of the slots that are forecast, by horizon."""
        seconds = self.link.slot_seconds
        first = self.as_of + seconds if self.first_slot is None else self.first_slot
        return range(first, first + len(self.expected) * seconds, seconds)

    def identity(self) -> tuple[object, ...]:
        """Return the values that identify a forecast, for comparisons and entity tags."""
        source = (self.as_of, self.model_version, self.degraded_reason, self.issued_at)
        return (self.link.link_id, self.link.link_key, *source)


def issue(link: LinkInfo, as_of: int, forecast: ModelForecast, issued_at: int) -> IssuedForecast:
    """Return a computed forecast as it is stored, rounded."""
    kind, text = forecast.reason or (None, None)
    return IssuedForecast(
        link,
        as_of,
        forecast.version,
        forecast.method,
        text,
        forecast.filled_lags,
        forecast.level,
        _rounded(forecast.expected),
        _rounded_or_none(forecast.lower),
        _rounded_or_none(forecast.upper),
        _rounded_or_none(forecast.profile),
        issued_at,
        degradation=kind,
        experts=forecast.experts,
    )


def _rounded(values: Array) -> list[float]:
    return [round(value, DECIMALS) for value in values[:HORIZONS].tolist()]


def _rounded_or_none(values: Array | None) -> list[float | None]:
    return [None] * HORIZONS if values is None else [*_rounded(values)]


def encode(document: Document) -> bytes:
    """Encode a document as compact JSON."""
    return to_json(document)  # a quarter of the time of json.dumps()


def link_document(issued: IssuedForecast, horizons: int, age: int, *, stale: bool = False) -> Document:
    """Return the document of one link's forecasts; ``age`` is that of its newest count, in seconds."""
    return {"link_id": issued.link.link_id, "stale": stale, "forecasts": _items(issued, horizons, age)}


def listed_document(issued: IssuedForecast, horizons: int, age: int) -> Document:
    """Return the document of a link's forecasts as one of many."""
    status = "degraded" if issued.degraded_reason else "ok"
    return {"link_id": issued.link.link_id, "status": status, "forecasts": _items(issued, horizons, age)}


def _items(issued: IssuedForecast, horizons: int, age: int) -> list[Document]:
    slots = issued.slots()
    return [
        {
            "horizon": h + 1,
            "slot_start": _rfc_3339(slot),
            "expected_count": issued.expected[h],
            "lower": issued.lower[h],
            "upper": issued.upper[h],
            "level": issued.level,
            "flow": round(issued.expected[h] * 3600 / slots.step, 3),
            "as_of_slot": _rfc_3339(issued.as_of),
            "issued_at": _rfc_3339_micros(issued.issued_at),
            "method": issued.method,
            "degraded_reason": issued.degraded_reason,
            "filled_lags": issued.filled_lags,
            "data_age_seconds": age,
            "model_version": issued.model_version or None,
            "profile_count": issued.profile[h],
        }
        for h, slot in enumerate(slots[:horizons])
    ]


@lru_cache(maxsize=2048)  # all links of a batch share their slots, of a day at most, and the time of issue
def _rfc_3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=256)
def _rfc_3339_micros(microseconds: int) -> str:
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
