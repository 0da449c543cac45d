"""Counts in responses."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from app.counts.tables import Quality
from app.counts.verdicts import SlotVerdict
from app.http.examples import with_example


class ReplacedCount(BaseModel):
    """A count that a later one replaced, or that was deleted."""

    count: int = Field(description="Vehicles in the slot, as it was", examples=[117])
    quality: Quality = Field(description="The origin of that count")
    replaced_at: datetime = Field(
        description="When the later count was stored, or this one was deleted", examples=["2025-09-01T09:02:11Z"]
    )
    reason: str | None = Field(
        description="Why it was deleted; null where a later count replaced it", examples=["detector fault"]
    )


class SlotCount(BaseModel):
    """One slot of a link; a gap has neither count nor quality."""

    slot_start: datetime = Field(description="Start of the slot, in UTC", examples=["2025-09-01T08:00:00Z"])
    count: int | None = Field(description="Vehicles in the slot; null where there is no count", examples=[121])
    quality: Quality | None = Field(
        description="The origin of the count, as its sender stated it; null where there is no count",
        examples=["observed"],
    )
    verdict: SlotVerdict | None = Field(
        description="The fault that detector health found, so that the count is not learnt from; null for none"
    )


class CorrectedCount(SlotCount):
    """One slot of a link with what its count replaced."""

    corrections: list[ReplacedCount] = Field(description="Counts that were replaced or deleted, the oldest first")


@with_example
class CountPage(BaseModel):
    """Slots of a link in order, gaps shown, a page of them."""

    link_id: str = Field(examples=["Ba"])
    slot_minutes: int = Field(description="Length of a slot in minutes", examples=[15])
    from_: datetime | None = Field(
        serialization_alias="from",
        description="Start of the span, included; null for a link without counts",
        examples=["2025-09-01T08:00:00Z"],
    )
    to: datetime | None = Field(
        description="End of the span, excluded; null for a link without counts", examples=["2025-09-01T08:15:00Z"]
    )
    counts: list[CorrectedCount] | list[SlotCount] = Field(
        description="Every slot of the span, with `corrections` if they were requested"
    )
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")


@with_example
class DeletedCounts(BaseModel):
    """Which counts were deleted."""

    link_id: str = Field(examples=["Ba"])
    from_: datetime = Field(
        serialization_alias="from", description="Start of the span, included", examples=["2025-09-26T06:15:00Z"]
    )
    to: datetime = Field(description="End of the span, excluded")
    reason: str = Field(description="Why, as it is kept with each count", examples=["detector fault"])
    deleted: int = Field(description="Counts that were deleted", examples=[12])


class RefusedCount(BaseModel):
    """One count that was refused."""

    index: int = Field(description="Its place in the batch, from 0")
    link_id: str
    slot_start: str
    field: str = Field(description="The field that breaks a rule")
    value: str
    reason: str = Field(description="The rule")


@with_example
class IngestReport(BaseModel):
    """The report of a batch: received = stored + replaced + unchanged + refused."""

    received: int = Field(description="Counts in the batch", examples=[96])
    stored: int = Field(description="New counts", examples=[95])
    replaced: int = Field(description="Corrections; the replaced counts are kept", examples=[1])
    unchanged: int = Field(description="Counts that were stored already with the same value", examples=[0])
    refused: list[RefusedCount] = Field(description="Counts that were refused; only with `partial=true`", examples=[[]])
    forecasts_issued: int = Field(description="Links that got a new forecast", examples=[1])


class RefusedEntry(BaseModel):
    """One entry of a file that was refused; a whole row or a whole link stands for several values."""

    source: str = Field(description="The file, or the member of an archive", examples=["body"])
    line: int | None = Field(description="Line in the source; null for what was refused by link, not by line")
    field: str = Field(description="The field that breaks a rule", examples=["count"])
    value: str = Field(examples=["-1"])
    reason: str = Field(description="The rule", examples=["must be a whole number from 0 to 2147483647, in digits"])
    values: int = Field(description="Values it stands for", examples=[1])


@with_example
class ImportedFile(BaseModel):
    """The report of a file: values = stored + replaced + unchanged + repeated + gaps + refused."""

    format: str = Field(description="The layout it was read in", examples=["flowcast-csv"])
    dry_run: bool = Field(description="Whether this only reports what would be stored")
    rows: int = Field(description="Rows read", examples=[97])
    values: int = Field(description="Values in them: a row may have a whole day", examples=[97])
    stored: int = Field(description="New counts", examples=[94])
    replaced: int = Field(description="Corrections; the replaced counts are kept", examples=[1])
    unchanged: int = Field(description="Counts that were stored already with the same value", examples=[0])
    repeated: int = Field(description="Counts that a later one of the same file replaced", examples=[0])
    gaps: int = Field(
        description="Slots that the file declares to have no count, or that lack a row of a sum", examples=[1]
    )
    refused: int = Field(description="Values that were refused", examples=[1])
    suspect: int = Field(description="Accepted counts that are marked suspect", examples=[0])
    imputed: int = Field(description="Accepted counts that are marked imputed", examples=[0])
    links: int = Field(description="Links in the file", examples=[1])
    links_created: int = Field(description="Links that are new", examples=[0])
    unknown_links: list[str] = Field(description="Links that do not exist, the first 100; their counts are refused")
    first_slot: datetime | None = Field(
        description="Start of the first slot with an accepted count", examples=["2025-09-25T06:30:00Z"]
    )
    last_slot: datetime | None = Field(
        description="Start of the last slot with an accepted count", examples=["2025-09-26T06:30:00Z"]
    )
    reasons: dict[str, int] = Field(description="Refused values by the rule they broke")
    suspects: dict[str, int] = Field(description="Suspect counts by the reason, of which several may apply")
    notes: list[str] = Field(
        description="How the file was read: rows summed into longer slots, columns that were not read"
    )
    refusals: list[RefusedEntry] = Field(description="The first 100 refused entries")
    forecasts_issued: int = Field(default=0, description="Links that got a new forecast", examples=[1])
