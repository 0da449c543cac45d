"""Forecasts as responses."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from app.http.examples import example_of, with_example
from app.registry.schemas import LagWeight
from model.aggregation.experts import EXPERT_NAMES

Method = Literal["ENSEMBLE", "KR_SML", "NETWORK", "MLKR", "KR", "KR_PCA", "profile", "last_count"]
AS_OF = "2025-09-26T06:30:00Z"  # in examples


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
        description="Share of counts that the interval should contain; the first of several levels", examples=[0.9]
    )
    flow: float = Field(description="The expected count as vehicles per hour", examples=[349.6])
    as_of_slot: datetime = Field(
        description="The newest slot whose count was known; all that were used precede it", examples=[AS_OF]
    )
    issued_at: datetime = Field(description="Time of day at which it was issued")
    method: Method = Field(
        description="What made it: several experts together (`ENSEMBLE`), a trained model, the link's profile, or the "
        "last count",
        examples=["ENSEMBLE"],
    )
    degraded_reason: str | None = Field(
        description="Why it is not by the active models; null if it is, and where no model was better than the profile"
    )
    filled_lags: int = Field(
        description="Gaps in the lag window that the profile filled, for NETWORK among the latest 32 slots",
        examples=[0],
    )
    data_age_seconds: int = Field(description="Age of the newest count now, from the end of its slot", examples=[41])
    model_version: int | None = Field(
        description="Version of the trained model, of an ensemble that of the expert with the largest weight; null "
        "where that is none",
        examples=[3],
    )
    profile_count: float | None = Field(
        description="Vehicles that the link's profile expects in the slot; null without a profile", examples=[371.4]
    )
    intervals: list[LevelInterval] = Field(
        default_factory=list,
        description="The intervals of all levels, in the order of `level=`; only there where that names several",
        examples=[[{"level": 0.9, "lower": 71.0, "upper": 104.2}, {"level": 0.5, "lower": 80.7, "upper": 94.3}]],
    )


class Neighbour(BaseModel):
    """A past moment that resembles now, of the link itself, or for NETWORK of any link."""

    link_id: str = Field(description="Link of the moment", examples=["Ba"])
    slot_start: datetime = Field(description="The slot that followed it")
    weight: float = Field(
        description="Its share of the forecast, for NETWORK of the correction",
        examples=[0.11],
    )
    counts: list[float | None] = Field(
        description="The counts that followed, horizon by horizon, for NETWORK those of that link; null where unknown",
        examples=[[87.0, 91.0, 84.0, 80.0]],
    )
    missed: list[float | None] | None = Field(
        default=None,
        description="For NETWORK the error of its linear base at that moment, by horizon, in vehicles of the link "
        "that is explained; null for other methods",
        examples=[[3.1, 4.8, -2.2, 0.7]],
    )


class ContextShare(BaseModel):
    """The vehicles that one part of the context adds to the count that is expected one slot ahead."""

    part: str = Field(
        description="`usual`, the profile's count of the slot; a part of the context, such as `deviations`; `offset`, "
        "the constant deviation from the profile; or `correction`, what the memories add",
        examples=["deviations"],
    )
    vehicles: float = Field(
        description="The sum of all parts is the expected count before it is limited to 0 from below", examples=[-3.1]
    )


class MemoryShares(BaseModel):
    """The shares of each memory's correction that a network model adds to its linear base."""

    own: float = Field(description="Of the link's own past", examples=[0.5])
    network: float = Field(description="Of the past of all links", examples=[0.5])


class ModelExplanation(BaseModel):
    """The explanation of a forecast by a trained model."""

    neighbours: list[Neighbour] = Field(
        description="Past moments that resemble this one, the largest weight first; none for a NETWORK model without "
        "`shares`"
    )
    lags: list[LagWeight] = Field(
        description="Lags with the largest weights in the metric; empty for NETWORK", examples=[[]]
    )
    rank: int = Field(description="Rank of the learnt metric", examples=[24])
    context: list[ContextShare] | None = Field(
        default=None,
        description="For NETWORK what each part adds, one slot ahead; null for other methods",
        examples=[[example_of(ContextShare)]],
    )
    shares: MemoryShares | None = Field(
        default=None,
        description="For NETWORK the shares of the memories; null for other methods",
        examples=[example_of(MemoryShares)],
    )


class ExpertShare(BaseModel):
    """One expert of an ensemble."""

    name: str = Field(
        description="`NETWORK`, `KR_SML`, `profile`, `last_count` or `scaled_profile`", examples=["NETWORK"]
    )
    model_version: int | None = Field(description="Version of its trained model; null without one", examples=[3])
    weight: float = Field(description="Its weight one slot ahead; the weights add up to 1", ge=0, le=1, examples=[0.62])
    expected_count: float | None = Field(
        description="Vehicles it expects one slot ahead; null where it has no forecast", examples=[88.1]
    )
    recent_rmse: float | None = Field(
        description="RMSE of its forecasts one slot ahead in the last 24 hours; null where none is known",
        examples=[9.7],
    )
    recent_slots: int = Field(description="How many slots `recent_rmse` is made of", ge=0, examples=[96])
    explanation: ModelExplanation | None = Field(
        description="Its own explanation; null where it has no trained model, or too many of its counts are missing",
        examples=[example_of(ModelExplanation)],
    )


class Explanation(ModelExplanation):
    """The explanation of a forecast; that of an ensemble is of its trained model with the largest weight."""

    experts: list[ExpertShare] | None = Field(
        default=None,
        description="The experts of an ensemble, the largest weight first; null for other methods",
        examples=[[example_of(ExpertShare)]],
    )


STALE = "Whether the database is unreachable, so that this was issued before and newer counts may exist"


@with_example
class LinkForecast(BaseModel):
    """A link's forecasts, nearest first."""

    link_id: str = Field(examples=["Ba"])
    stale: bool = Field(description=STALE, examples=[False])
    forecasts: list[ForecastOut]


@with_example
class ExplainedForecast(LinkForecast):
    """A link's forecasts with their reasons; ``explanation`` is null where no trained model made them."""

    explanation: Explanation | None = Field(examples=[example_of(Explanation)])


class LinkStatus(BaseModel):
    """One link in the response for all."""

    link_id: str = Field(examples=["Ba"])
    status: Literal["ok", "degraded", "no_counts", "failed"] = Field(
        description="ok: by the active models, or by a profile that was chosen over them; degraded: by another method; "
        "no_counts: the link never had a count; failed: computing it failed, and the log has the reason"
    )
    forecasts: list[ForecastOut]


@with_example
class NetworkForecast(BaseModel):
    """Forecasts of many links, by link_id."""

    stale: bool = Field(description=STALE, examples=[False])
    links: list[LinkStatus]


class PastForecastOut(BaseModel):
    """A past forecast, and the realised count."""

    slot_start: datetime
    horizon: int = Field(examples=[1])
    expected_count: float = Field(examples=[381.2])
    lower: float | None = Field(examples=[336.1])
    upper: float | None = Field(examples=[428.9])
    level: float = Field(examples=[0.9])
    count: int | None = Field(description="The realised count; null while there is none", examples=[377])
    quality: Literal["observed", "imputed", "suspect"] | None = Field(examples=["observed"])
    realised_error: float | None = Field(
        description="expected_count - count: positive when too many were expected", examples=[4.2]
    )
    as_of_slot: datetime = Field(examples=[AS_OF])
    issued_at: datetime
    method: Method = Field(examples=["NETWORK"])
    degraded_reason: str | None
    filled_lags: int = Field(examples=[0])
    model_version: int | None = Field(examples=[1])


@with_example
class PastForecasts(BaseModel):
    """A page of past forecasts, in order of slots."""

    link_id: str = Field(examples=["Ba"])
    forecasts: list[PastForecastOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")


class ExpertWeights(BaseModel):
    """The weights and forecasts of a link's experts for one slot."""

    slot_start: datetime = Field(description="Start of the slot that was forecast")
    as_of_slot: datetime = Field(description="The newest slot whose count was known", examples=[AS_OF])
    expected_count: float = Field(description="Vehicles that the ensemble expected", examples=[381.2])
    count: int | None = Field(description="The realised count; null while there is none", examples=[377])
    weights: dict[str, float] = Field(
        description="Weight of each expert; they add up to 1", examples=[{"NETWORK": 0.7, "last_count": 0.3}]
    )
    expected_counts: dict[str, float | None] = Field(
        description="Vehicles that each expert expected; null where it had no forecast",
        examples=[{"NETWORK": 390.1, "last_count": 360.0}],
    )


@with_example
class ExpertHistory(BaseModel):
    """A page of the weights of a link's experts, in order of slots."""

    link_id: str = Field(examples=["Ba"])
    horizon: int = Field(description="Slots ahead", examples=[1])
    slots: list[ExpertWeights]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")


EXAMPLE, PAST_EXAMPLE = example_of(ForecastOut), example_of(PastForecastOut)
LINK_EXAMPLE, STATUS_EXAMPLE = example_of(LinkForecast), example_of(LinkStatus)
# Of answers as CSV.
FORECAST_COLUMNS = [name for name in ForecastOut.model_fields if name != "intervals"]
LINK_COLUMNS = ["link_id", *FORECAST_COLUMNS]
NETWORK_COLUMNS = ["link_id", "status", *FORECAST_COLUMNS]
PAST_COLUMNS = ["link_id", *PastForecastOut.model_fields]
EXPERT_COLUMNS = ["link_id", "slot_start", "as_of_slot", "expected_count", "count"]
EXPERT_COLUMNS += [f"{kind}_{name}" for kind in ("weight", "expected") for name in EXPERT_NAMES]


def as_expert_row(slot: dict[str, Any]) -> dict[str, Any]:
    """Return the weights of a slot as a row of CSV, with a pair of columns for each expert."""
    weights = {f"weight_{name}": weight for name, weight in slot["weights"].items()}
    return slot | weights | {f"expected_{name}": count for name, count in slot["expected_counts"].items()}


EXPERT_ROW = as_expert_row(example_of(ExpertWeights))
