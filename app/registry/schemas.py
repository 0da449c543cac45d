"""Trained models as responses, and the description that an artifact must have to be registered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from app.http.examples import example_of, with_example

LARGEST_VERSION = 2**31 - 1
SHA_256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # in examples
VersionPath = Annotated[int, Path(ge=1, le=LARGEST_VERSION, description="Version of the link's models", examples=[1])]


class StoredMeasure(BaseModel):
    """A measure as training writes it: its value, and how many slots it was made of."""

    model_config = ConfigDict(extra="allow")

    value: float | None
    n_used: int


class ModelVerdict(BaseModel):
    """One fault that was found in the training counts."""

    name: str = Field(description="`dead`, `stuck`, `impossible` or `too_few`", examples=["stuck"])
    reason: str = Field(description="What was found, in words", examples=["8 slots of 57"])
    first: int = Field(description="First slot it concerns, counted from `trained_from`", examples=[410])
    last: int = Field(description="Last slot it concerns, counted from `trained_from`", examples=[417])


class ArtifactAbout(BaseModel):
    """The description in an artifact: its link, how it was learnt and how accurate it was."""

    model_config = ConfigDict(extra="ignore")

    link_id: str
    zone: str
    slot_minutes: int
    trained_from: AwareDatetime
    trained_to: AwareDatetime
    plan: dict[str, Any]
    held_out: dict[str, dict[str, StoredMeasure]]
    verdicts: list[ModelVerdict]
    suspect: int
    gaps: int
    mu: float | None = None
    n_iter: int | None = None
    data_fingerprint: str


class RunDecision(BaseModel):
    """The decision of the retrain run that trained a model."""

    run_id: int = Field(examples=[1])
    outcome: Literal["activated", "refused"]
    reason: str = Field(
        description="Why, with the figures compared", examples=["RMSE 11.2 is below 13.9 of the profile"]
    )


class ModelVersionOut(BaseModel):
    """A trained model in the registry."""

    version: int = Field(description="Counts from 1 on each link", ge=1, examples=[3])
    state: Literal["candidate", "active", "retired"] = Field(
        description="At most one version of each algorithm is `active`", examples=["active"]
    )
    algorithm: str = Field(examples=["KR_SML"])
    expert: bool = Field(
        description="Whether it was trained as one of the experts of its link: to activate it lets the active models "
        "forecast together, as `ENSEMBLE`; any other version forecasts alone",
        examples=[True],
    )
    serving: bool = Field(
        description="Whether it forecasts the link, alone or as an expert; false for an active version beside another "
        "one that was activated later and forecasts alone",
        examples=[True],
    )
    parameters: dict[str, Any] = Field(
        description="How it was trained: lags, neighbours, held-out days and so on", examples=[{"lags": 45}]
    )
    trained_from: datetime = Field(
        description="Start of the first slot it was trained on", examples=["2025-08-01T22:00:00Z"]
    )
    trained_to: datetime = Field(description="End of the last slot it was trained on")
    rank: int = Field(description="Rank of the learnt metric", examples=[12])
    size_bytes: int = Field(
        description="Bytes of its own artifact on disk; 0 where that is unknown", ge=0, examples=[184_320]
    )
    held_out: dict[str, dict[str, float | None]] = Field(
        description="Accuracy one slot ahead on the held-out days: `candidate`, this model, beside `KR`, `profile`, "
        "`last_week` and, of a retrain run, what forecast the link then, `active`, and the aggregates of experts, "
        "each by measure; null where that is undefined",
        examples=[{"candidate": {"rmse": 11.2, "mare": 0.118}, "profile": {"rmse": 13.9, "mare": 0.139}}],
    )
    decision: RunDecision | None = Field(
        description="Whether the retrain run activated it, and why; null without a run",
        examples=[example_of(RunDecision)],
    )
    created_at: datetime = Field(description="When it was registered")
    activated_at: datetime | None = Field(description="When it last became the active one")
    retired_at: datetime | None = Field(description="When another version replaced it")
    damaged: str | None = Field(description="The damage that was found in its artifact; null for none")


class LagWeight(BaseModel):
    """The weight of one lag in the learnt metric."""

    lag: int = Field(description="Slots back, from 1 for the newest count", ge=1, examples=[1])
    weight: float = Field(
        description="Share of the metric's trace; all weights add up to 1", ge=0, le=1, examples=[0.41]
    )


class ContextWeight(BaseModel):
    """The weight of one column of context in the metric of a network."""

    part: str = Field(description="Part of the context", examples=["deviations"])
    column: str = Field(description="Column of that part", examples=["deviation 1"])
    weight: float = Field(description="Share of the metric's trace; all weights add up to 1", ge=0, le=1)


@with_example
class ModelVersionDetail(ModelVersionOut):
    """A trained model with its penalty, its training counts and the weights of its metric."""

    mu: float | None = Field(
        description="Strength of the penalty that was chosen; null where the algorithm has none", examples=[0.01]
    )
    n_iter: int | None = Field(description="Steps that were taken; null where the algorithm takes none", examples=[25])
    gaps: int = Field(description="Slots without a count in the training span", examples=[3])
    suspect: int = Field(description="Counts in the training span that were not learnt from", examples=[8])
    verdicts: list[ModelVerdict] = Field(description="What was found wrong with the training counts")
    data_fingerprint: str = Field(description="SHA-256 of the counts it was learnt from", examples=[SHA_256])
    fingerprint: str = Field(description="SHA-256 of its artifact's manifest", examples=[SHA_256])
    lag_weights: list[LagWeight] | None = Field(
        description="Lags with the largest weights; empty for NETWORK, which has `context_weights`; "
        "null where the artifact cannot be read",
        examples=[[example_of(LagWeight)]],
    )
    context_weights: list[ContextWeight] | None = Field(
        default=None,
        description="For NETWORK the columns of context with the largest weights; null for other algorithms "
        "and where the artifact cannot be read",
    )
    network: str | None = Field(
        default=None, description="For NETWORK the fingerprint of the artifact it shares with the network's other links"
    )
    chosen: str | None = Field(
        default=None,
        description="For a run of `best`, what was best by itself on the held-out slots, with the figures",
    )


@with_example
class ModelList(BaseModel):
    """The trained models of a link, the newest first, a page of them."""

    link_id: str = Field(examples=["Ba"])
    choice: Literal["ensemble", "profile", "withdrawn"] | None = Field(
        description="What forecasts the link: `ensemble`, its active experts together; `profile`, because it won on "
        "the held-out days of a run of `best`, or `withdrawn`, its profile because its models were withdrawn; null "
        "where the version that was activated last does, or nothing was decided"
    )
    models: list[ModelVersionOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")
