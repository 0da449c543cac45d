"""Health as responses."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from app.http.examples import with_example


class State(StrEnum):
    """The states of a link's feed."""

    OK = "ok"
    SUSPECT = "suspect"
    STALE = "stale"
    SILENT = "silent"


class VerdictName(StrEnum):
    """The verdicts on counts."""

    DEAD = "dead"
    STUCK = "stuck"
    IMPOSSIBLE = "impossible"
    TOO_FEW = "too_few"


class HealthVerdict(BaseModel):
    """One verdict, with the slots that it concerns."""

    name: VerdictName
    reason: str = Field(examples=["40 slots of zero where about 2210 vehicles are usual"])
    from_: datetime = Field(
        serialization_alias="from", description="Start of the first slot it concerns", examples=["2025-09-25T20:45:00Z"]
    )
    to: datetime = Field(description="End of the last slot it concerns")
    slots: int = Field(description="How many slots it concerns", examples=[40])


class DayCompleteness(BaseModel):
    """The completeness of one local day; slots that are neither counted nor missing are not over yet."""

    day: date = Field(description="The day by the link's own clock", examples=["2025-09-01"])
    expected: int = Field(description="Slots of the day: 92, 96 or 100 of 15 minutes", examples=[96])
    observed: int = Field(description="Counts that were observed", examples=[94])
    imputed: int = Field(description="Counts that were imputed", examples=[0])
    suspect: int = Field(description="Counts stored as suspect", examples=[0])
    missing: int = Field(description="Slots that are over and have no count", examples=[2])


class Feed(BaseModel):
    """The freshness of a link's counts."""

    link_id: str = Field(examples=["Ba"])
    state: State = Field(
        description="`silent` without any count, `stale` when the newest is too old, `suspect` when a verdict "
        "touches the last 24 hours of counts, else `ok`",
        examples=["suspect"],
    )
    newest_slot: datetime | None = Field(
        description="Start of the newest slot with a count", examples=["2025-09-26T06:30:00Z"]
    )
    data_age_seconds: int | None = Field(description="Seconds since the end of that slot", examples=[320])


@with_example
class LinkHealth(Feed):
    """Health of one link."""

    stale_after_minutes: int = Field(
        description="Age of the newest count, in minutes, above which the link is stale", examples=[90]
    )
    verdicts: list[HealthVerdict] = Field(description="What was found wrong, the oldest first")
    days: list[DayCompleteness] = Field(description="Completeness by local day, up to that of the newest count")


class LinkState(Feed):
    """Health of one link among others."""

    newest_count: int | None = Field(description="The count of the newest slot", examples=[121])
    high_count: float | None = Field(
        description="The 99th percentile of the counts of the last 14 local days, as the top of the link's own range",
        examples=[455.0],
    )
    completeness: float | None = Field(
        description="Share of the last 24 hours' slots up to now that have a count", examples=[0.99]
    )
    verdicts: list[VerdictName] = Field(
        description="What was found wrong in the last 14 local days of counts", examples=[["dead"]]
    )


class FeedTotals(BaseModel):
    """Numbers of links by the age of their newest count."""

    links: int = Field(examples=[1000])
    live: int = Field(
        description="The newest count is not older than `FLOWCAST_STALE_AFTER_MINUTES`; `ok` or `suspect`",
        examples=[991],
    )
    stale: int = Field(examples=[7])
    silent: int = Field(examples=[2])


@with_example
class NetworkHealth(BaseModel):
    """Health of all links, and of each in a page."""

    totals: FeedTotals
    stale_after_minutes: int = Field(
        description="Age of the newest count, in minutes, above which the link is stale", examples=[90]
    )
    links: list[LinkState] = Field(description="A page of links, by id")
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")
