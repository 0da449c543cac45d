"""What ``POST /v1/import`` answers."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class RefusedEntry(BaseModel):
    """One entry of a file that was not taken; a whole row or a whole link stands for several values."""

    source: str = Field(description="The file, or the member of an archive", examples=["body"])
    line: int | None = Field(description="Line in the source; null for what was refused by link, not by line")
    field: str = Field(description="The field that breaks a rule", examples=["count"])
    value: str = Field(examples=["-1"])
    reason: str = Field(description="The rule")
    values: int = Field(description="Values it stands for", examples=[1])


class ImportedFile(BaseModel):
    """What became of a file: values = stored + replaced + unchanged + repeated + gaps + refused."""

    format: str = Field(description="The layout it was read in", examples=["flowcast-csv"])
    dry_run: bool = Field(description="Whether nothing was stored, whatever the figures say would have been")
    rows: int = Field(description="Rows read", examples=[97])
    values: int = Field(description="Values in them: a row may hold a whole day", examples=[97])
    stored: int = Field(description="New counts", examples=[94])
    replaced: int = Field(description="Corrections; what they replaced is kept in history", examples=[1])
    unchanged: int = Field(description="Counts that were there already, just so", examples=[0])
    repeated: int = Field(description="Counts that a later one of the same file replaced", examples=[0])
    gaps: int = Field(description="Slots that the file says have no count, or that lack a row of a sum", examples=[1])
    refused: int = Field(description="Values that were not taken", examples=[1])
    suspect: int = Field(description="Taken counts that are marked suspect", examples=[0])
    imputed: int = Field(description="Taken counts that are marked imputed", examples=[0])
    links: int = Field(description="Links in the file", examples=[1])
    links_created: int = Field(description="Links that are new", examples=[0])
    unknown_links: list[str] = Field(description="Links that do not exist, the first 100; their counts are refused")
    first_slot: datetime | None = Field(description="Start of the first slot of a taken count")
    last_slot: datetime | None = Field(description="Start of the last slot of a taken count")
    reasons: dict[str, int] = Field(description="Refused values by the rule they broke")
    suspects: dict[str, int] = Field(description="Suspect counts by the reason, of which several may apply")
    notes: list[str] = Field(
        description="How the file was read: rows summed into longer slots, columns that were not read"
    )
    refusals: list[RefusedEntry] = Field(description="The first 100 refused entries")
    forecasts_issued: int = Field(default=0, description="Links that got a new forecast", examples=[1])
