"""Forecasts as responses."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.registry.schemas import LagWeight

Method = Literal["KR_SML", "NETWORK", "MLKR", "KR", "KR_PCA", "profile", "last_count"]


EXAMPLE: dict[str, Any] = {
    "horizon": 1,
    "slot_start": "2025-09-26T06:45:00Z",
    "expected_count": 398.919,
    "lower": 351.978,
    "upper": 447.664,
    "level": 0.9,
    "flow": 1595.676,
    "as_of_slot": "2025-09-26T06:30:00Z",
    "issued_at": "2026-11-18T21:13:18.982676Z",
    "method": "NETWORK",
    "degraded_reason": None,
    "filled_lags": 0,
    "data_age_seconds": 0,
    "model_version": 1,
}
LINK_EXAMPLE: dict[str, Any] = {"link_id": "Ba", "stale": False, "forecasts": [EXAMPLE]}
INTERVALS_EXAMPLE = [
    {"level": 0.5, "lower": 379.671, "upper": 418.906},
    {"level": 0.95, "lower": 342.985, "upper": 457.003},
]
LEVELS_EXAMPLE: dict[str, Any] = LINK_EXAMPLE | {
    "forecasts": [EXAMPLE | INTERVALS_EXAMPLE[0] | {"intervals": INTERVALS_EXAMPLE}]
}
STATUS_EXAMPLE: dict[str, Any] = {"link_id": "Ba", "status": "ok", "forecasts": [EXAMPLE]}
EXPLANATION_EXAMPLE: dict[str, Any] = {
    "neighbours": [
        {
            "link_id": "Ba",
            "slot_start": "2025-09-19T06:45:00Z",
            "weight": 0.11,
            "counts": [402.0, 431.0, 440.0, 418.0],
            "missed": [3.1, 4.8, -2.2, 0.7],
        }
    ],
    "lags": [],
    "rank": 24,
    "context": [
        {"part": "usual", "vehicles": 401.2},
        {"part": "deviations", "vehicles": -3.1},
        {"part": "offset", "vehicles": 0.4},
        {"part": "correction", "vehicles": 0.419},
    ],
    "shares": {"own": 0.5, "network": 0.5},
}
PAST_EXAMPLE: dict[str, Any] = {
    "slot_start": "2025-09-26T06:30:00Z",
    "horizon": 1,
    "expected_count": 381.2,
    "lower": 336.1,
    "upper": 428.9,
    "level": 0.9,
    "count": 377,
    "quality": "observed",
    "realised_error": 4.2,
    "as_of_slot": "2025-09-26T06:15:00Z",
    "issued_at": "2026-11-18T21:13:17.410233Z",
    "method": "NETWORK",
    "degraded_reason": None,
    "filled_lags": 0,
    "model_version": 1,
}


class LevelInterval(BaseModel):
    """An interval of one level."""

    level: float = Field(description="Share of counts the interval is meant to hold", examples=[0.5])
    lower: float | None = Field(description="Lower end, or null where there is no interval")
    upper: float | None = Field(description="Upper end")


class ForecastOut(BaseModel):
    """The forecast of one slot."""

    horizon: int = Field(
        description="Slots ahead of the newest count, from 1; once that is too old, of the last slot that is over",
        examples=[1],
    )
    slot_start: datetime = Field(description="Start of the slot that is forecast")
    expected_count: float = Field(description="Vehicles expected in the slot", examples=[87.4])
    lower: float | None = Field(description="Lower end of the interval, or null", examples=[71.0])
    upper: float | None = Field(description="Upper end of the interval", examples=[104.2])
    level: float = Field(
        description="Share of counts the interval is meant to hold; the first of several levels", examples=[0.9]
    )
    flow: float = Field(description="The expected count as vehicles per hour", examples=[349.6])
    as_of_slot: datetime = Field(description="The newest slot whose count was known; all that were used precede it")
    issued_at: datetime = Field(description="When it was issued")
    method: Method = Field(description="What made it: a trained model, the link's profile, or the last count")
    degraded_reason: str | None = Field(
        description="Why not the active model; null when it made the forecast, and where the profile was chosen over it"
    )
    filled_lags: int = Field(
        description="Gaps in the lag window that the profile filled, for NETWORK among the latest 32 slots",
        examples=[0],
    )
    data_age_seconds: int = Field(description="Age of the newest count now, from the end of its slot", examples=[41])
    model_version: int | None = Field(description="Version of the trained model; null without one", examples=[3])
    intervals: list[LevelInterval] = Field(
        default_factory=list,
        description="The intervals of all levels, in the order of `level=`; only there where that names several",
    )


class Neighbour(BaseModel):
    """A moment in the past that looked like now: the link's own, or for NETWORK another link's, too."""

    link_id: str = Field(description="The link that saw it", examples=["Ba"])
    slot_start: datetime = Field(description="The slot that followed it")
    weight: float = Field(
        description="Its share of the forecast, for NETWORK of the correction; where `shares` are zero, of its memory",
        examples=[0.11],
    )
    counts: list[float | None] = Field(
        description="The counts that followed, horizon by horizon, for NETWORK those of that link; null where unknown"
    )
    missed: list[float | None] | None = Field(
        default=None,
        description="For NETWORK what its linear base had missed by then, horizon by horizon, in vehicles of the link "
        "that is explained; null for other methods",
    )


class ContextShare(BaseModel):
    """The vehicles that one part of the context adds to the count that is expected one slot ahead."""

    part: str = Field(
        description="`usual`, the profile's count of the slot; a part of the context, such as `deviations`; `offset`, "
        "what always differs from the profile; or `correction`, what the memories add",
        examples=["deviations"],
    )
    vehicles: float = Field(
        description="All parts add up to the expected count, before it is kept from falling below 0"
    )


class MemoryShares(BaseModel):
    """The shares of each memory's correction that a network model adds to its linear base."""

    own: float = Field(description="Of the link's own past", examples=[0.5])
    network: float = Field(description="Of the past of all links", examples=[0.5])


class Explanation(BaseModel):
    """The explanation of a forecast."""

    neighbours: list[Neighbour] = Field(description="Moments that looked like this one, the heaviest first")
    lags: list[LagWeight] = Field(description="The lags that matter, the heaviest first; empty for NETWORK")
    rank: int = Field(description="Rank of the learnt metric", examples=[24])
    context: list[ContextShare] | None = Field(
        default=None, description="For NETWORK what each part adds, one slot ahead; null for other methods"
    )
    shares: MemoryShares | None = Field(
        default=None, description="For NETWORK the shares of the memories; null for other methods"
    )


STALE = "Whether the database is unreachable, so that this was issued before and newer counts may exist"


class LinkForecast(BaseModel):
    """A link's forecasts, nearest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [LINK_EXAMPLE, LEVELS_EXAMPLE]})

    link_id: str = Field(examples=["Ba"])
    stale: bool = Field(description=STALE, examples=[False])
    forecasts: list[ForecastOut]


class ExplainedForecast(LinkForecast):
    """The same, with its reasons; ``explanation`` is null where no trained model made it."""

    model_config = ConfigDict(json_schema_extra={"examples": [LINK_EXAMPLE | {"explanation": EXPLANATION_EXAMPLE}]})

    explanation: Explanation | None


class LinkStatus(BaseModel):
    """One link in the response for all."""

    link_id: str = Field(examples=["Ba"])
    status: Literal["ok", "degraded", "no_counts", "failed"] = Field(
        description="ok: by its active model, or by the profile that a run chose; degraded: by another method; "
        "no_counts, failed: there is none"
    )
    forecasts: list[ForecastOut]


class NetworkForecast(BaseModel):
    """Forecasts of many links, by link_id."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"stale": False, "links": [STATUS_EXAMPLE]}]})

    stale: bool = Field(description=STALE, examples=[False])
    links: list[LinkStatus]


class PastForecastOut(BaseModel):
    """A past forecast, and the realised count."""

    slot_start: datetime
    horizon: int
    expected_count: float
    lower: float | None
    upper: float | None
    level: float
    count: int | None = Field(description="The realised count; null while there is none")
    quality: Literal["observed", "imputed", "suspect"] | None
    realised_error: float | None = Field(description="expected_count - count: positive when too many were expected")
    as_of_slot: datetime
    issued_at: datetime
    method: Method
    degraded_reason: str | None
    filled_lags: int
    model_version: int | None


class PastForecasts(BaseModel):
    """A page of past forecasts, in order of slots."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"link_id": "Ba", "forecasts": [PAST_EXAMPLE], "next_cursor": None}]}
    )

    link_id: str
    forecasts: list[PastForecastOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")


# Of answers as CSV.
FORECAST_COLUMNS = [name for name in ForecastOut.model_fields if name != "intervals"]
LINK_COLUMNS = ["link_id", *FORECAST_COLUMNS]
NETWORK_COLUMNS = ["link_id", "status", *FORECAST_COLUMNS]
PAST_COLUMNS = ["link_id", *PastForecastOut.model_fields]
