"""What ``POST /v1/counts`` answers."""

from __future__ import annotations

from pydantic import BaseModel, Field


class RefusedCount(BaseModel):
    """One count that was not taken."""

    index: int = Field(description="Where it stood in the batch, from 0")
    link_id: str
    slot_start: str
    field: str = Field(description="The field that breaks a rule")
    value: str
    reason: str = Field(description="The rule")


class IngestReport(BaseModel):
    """What became of a batch: received = stored + replaced + unchanged + refused."""

    received: int = Field(description="Counts in the batch", examples=[96])
    stored: int = Field(description="New counts", examples=[95])
    replaced: int = Field(description="Corrections; what they replaced is kept in history", examples=[1])
    unchanged: int = Field(description="Counts that were there already, just so", examples=[0])
    refused: list[RefusedCount] = Field(description="Counts that were not taken; only with `partial=true`")
    forecasts_issued: int = Field(description="Links that got a new forecast", examples=[1])
