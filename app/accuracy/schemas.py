"""Accuracy in responses: summaries of realised errors, each with the numbers that explain it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from app.http.examples import with_example


class By(StrEnum):
    """The keys that accuracy can be broken down by."""

    HOUR = "hour"
    DAY = "day"
    HORIZON = "horizon"
    MODEL_VERSION = "model_version"


class Sort(StrEnum):
    """The figures that links can be ranked by."""

    RMSE = "rmse"
    MARE = "mare"
    MAE = "mae"
    BIAS = "bias"
    WAPE = "wape"
    GEH_MEAN = "geh_mean"
    GEH_PASS_SHARE = "geh_pass_share"  # nosec B105 # no password
    COVERAGE = "coverage"
    SKILL_PROFILE = "skill_profile"
    N_USED = "n_used"
    N_MISSING = "n_missing"


class Order(StrEnum):
    """The orders of a ranking."""

    ASC = "asc"
    DESC = "desc"


class SlotNumbers(BaseModel):
    """Numbers of the slots that figures include and leave out."""

    n_used: int = Field(description="Slots scored: they have a count and a forecast", examples=[95])
    n_below_floor: int = Field(
        description="Slots scored but left out of `mare`: their count is below `mare_min_count`", examples=[0]
    )
    n_missing: int = Field(description="Slots without a count", examples=[1])
    slots_without_forecast: int = Field(description="Slots with a count that nothing was forecast for", examples=[0])


class Errors(BaseModel):
    """Figures over all slots with a count and a forecast; null where a figure is undefined."""

    rmse: float | None = Field(description="Root of the mean squared error, vehicles per slot", examples=[11.4])
    mare: float | None = Field(
        description="Mean absolute relative error, over counts of at least `mare_min_count`", examples=[0.12]
    )
    mae: float | None = Field(description="Mean absolute error, vehicles per slot", examples=[8.6])
    bias: float | None = Field(description="Mean of expected - count, vehicles per slot", examples=[-0.7])
    wape: float | None = Field(description="Sum of absolute errors over the sum of counts", examples=[0.09])
    geh_mean: float | None = Field(description="Mean GEH on hourly flows", examples=[1.9])
    geh_pass_share: float | None = Field(description="Share of slots with a GEH below 5", examples=[0.97])
    passes_geh: bool | None = Field(description="Whether that share is at least 0.85", examples=[True])
    coverage: float | None = Field(description="Share of counts inside the stated interval", examples=[0.91])
    skill_profile: float | None = Field(
        description="1 - RMSE / RMSE of the link's profile, as it was when the forecast was issued", examples=[0.21]
    )


class LinkErrors(Errors):
    """Figures of one link."""

    skill_last_week: float | None = Field(
        description="1 - RMSE / RMSE of the count of the same local slot a week before", examples=[0.35]
    )


class SeriesItem(SlotNumbers, LinkErrors):
    """Figures of one hour, day, horizon or model version; the others of these are null."""

    from_: datetime | None = Field(
        serialization_alias="from", description="Start of the hour or day by the link's own clock, in UTC"
    )
    horizon: int | None = Field(description="Slots ahead", examples=[1])
    model_version: int | None = Field(description="Version of the trained model; 0 without one")


@with_example
class LinkAccuracy(SlotNumbers, LinkErrors):
    """Accuracy of one link."""

    mare_min_count: int = Field(description="Smallest count that `mare` is computed over", examples=[1])
    link_id: str = Field(examples=["Ba"])
    from_: datetime | None = Field(
        serialization_alias="from",
        description="Start of the window, included; null for a link without counts",
        examples=["2025-09-25T06:45:00Z"],
    )
    to: datetime | None = Field(
        description="End of the window, excluded; null for a link without counts", examples=["2025-09-26T06:45:00Z"]
    )
    horizon: int = Field(description="Slots ahead", examples=[1])
    model_version: int | None = Field(description="Only forecasts of this version; null for all, as served")
    series: list[SeriesItem] | None = Field(
        description="The same broken down, when `by` was given; of hours and days the newest 2,000"
    )


class RankedLink(SlotNumbers, Errors):
    """Accuracy of one link among others."""

    link_id: str = Field(examples=["Ba"])


@with_example
class NetworkAccuracy(SlotNumbers, Errors):
    """Accuracy over all links, and of each."""

    mare_min_count: int = Field(description="Smallest count that `mare` is computed over", examples=[1])
    from_: datetime | None = Field(
        serialization_alias="from",
        description="Start of the window, included; null without any count",
        examples=["2025-09-25T06:45:00Z"],
    )
    to: datetime | None = Field(
        description="End of the window, excluded; null without any count", examples=["2025-09-26T06:45:00Z"]
    )
    horizon: int = Field(description="Slots ahead", examples=[1])
    links_total: int = Field(description="How many links there are", examples=[1000])
    links: list[RankedLink] = Field(description="A page of links, ranked; those without the figure come last")
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")
