"""Counts as they go out."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from app.counts.importers.record import Quality
from app.counts.verdicts import SlotVerdict


class ReplacedCount(BaseModel):
    """A count that a later one replaced, or that was deleted."""

    count: int = Field(description="Vehicles in the slot, as it was", examples=[117])
    quality: Quality = Field(description="How that count came about")
    replaced_at: datetime = Field(
        description="When the later count came in, or this one was deleted", examples=["2025-09-01T09:02:11Z"]
    )
    reason: str | None = Field(
        description="Why it was deleted; null where a later count replaced it", examples=["detector fault"]
    )


class SlotCount(BaseModel):
    """One slot of a link; a gap has neither count nor quality."""

    slot_start: datetime = Field(description="Start of the slot, in UTC", examples=["2025-09-01T08:00:00Z"])
    count: int | None = Field(description="Vehicles in the slot; null where there is no count", examples=[121])
    quality: Quality | None = Field(
        description="How the count came about, as its sender stated; null where there is no count"
    )
    verdict: SlotVerdict | None = Field(
        description="What detector health found wrong with the count, which is then not learnt from; null for nothing"
    )


class CorrectedCount(SlotCount):
    """One slot of a link with what its count replaced."""

    corrections: list[ReplacedCount] = Field(description="Counts that were replaced or deleted, the oldest first")


class CountPage(BaseModel):
    """Slots of a link in order, gaps shown, a page of them."""

    link_id: str = Field(examples=["0970-7"])
    slot_minutes: int = Field(description="Length of a slot in minutes", examples=[15])
    from_: datetime | None = Field(
        serialization_alias="from", description="Start of the span, included; null for a link without counts"
    )
    to: datetime | None = Field(description="End of the span, excluded; null for a link without counts")
    counts: list[CorrectedCount] | list[SlotCount] = Field(
        description="Every slot of the span; `corrections` only when asked for"
    )
    next_cursor: str | None = Field(description="Give it back as `cursor` for the next page; null at the end")


class DeletedCounts(BaseModel):
    """Which counts were deleted."""

    link_id: str = Field(examples=["0970-7"])
    from_: datetime = Field(serialization_alias="from", description="Start of the span, included")
    to: datetime = Field(description="End of the span, excluded")
    reason: str = Field(description="Why, as it is kept with each count", examples=["detector fault"])
    deleted: int = Field(description="Counts that were deleted", examples=[12])
