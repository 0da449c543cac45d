"""Trained models as responses, and the description that an artifact must have to be registered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

LARGEST_VERSION = 2**31 - 1
VersionPath = Annotated[int, Path(ge=1, le=LARGEST_VERSION, description="Version of the link's models", examples=[1])]


class StoredMeasure(BaseModel):
    """A measure as training writes it: its value, and how many slots it was made of."""

    model_config = ConfigDict(extra="allow")

    value: float | None
    n_used: int


class ModelVerdict(BaseModel):
    """One fault that was found in the training counts."""

    name: str = Field(description="`dead`, `stuck`, `impossible` or `too_few`", examples=["stuck"])
    reason: str = Field(description="What was found, in words")
    first: int = Field(description="First slot it concerns, counted from `trained_from`")
    last: int = Field(description="Last slot it concerns, counted from `trained_from`")


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

    run_id: int
    outcome: Literal["activated", "refused"]
    reason: str = Field(description="Why, with the figures compared")


EXAMPLE: dict[str, Any] = {
    "version": 1,
    "state": "active",
    "algorithm": "KR_SML",
    "parameters": {"lags": 45, "n_neighbors": 20, "bandwidth": 1.0},
    "trained_from": "2025-08-01T22:00:00Z",
    "trained_to": "2025-09-26T06:45:00Z",
    "rank": 12,
    "size_bytes": 184320,
    "held_out": {"candidate": {"rmse": 11.2, "mare": 0.118}, "profile": {"rmse": 13.9, "mare": 0.139}},
    "decision": {"run_id": 1, "outcome": "activated", "reason": "RMSE 11.2 is below 13.9 of the profile"},
    "created_at": "2026-11-18T21:12:40.120391Z",
    "activated_at": "2026-11-18T21:12:40.120391Z",
    "retired_at": None,
    "damaged": None,
}
DETAIL_EXAMPLE: dict[str, Any] = EXAMPLE | {
    "mu": 0.01,
    "n_iter": 25,
    "gaps": 3,
    "suspect": 8,
    "verdicts": [{"name": "stuck", "reason": "8 slots of 57", "first": 410, "last": 417}],
    "data_fingerprint": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "fingerprint": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
    "lag_weights": [{"lag": 1, "weight": 0.41}, {"lag": 2, "weight": 0.17}],
    "context_weights": None,
    "network": None,
    "chosen": None,
}


class ModelVersionOut(BaseModel):
    """A trained model in the registry."""

    version: int = Field(description="Counts from 1 on each link", ge=1, examples=[3])
    state: Literal["candidate", "active", "retired"] = Field(description="At most one version of a link is `active`")
    algorithm: str = Field(examples=["KR_SML"])
    parameters: dict[str, Any] = Field(
        description="How it was trained: lags, neighbours, held-out days and so on", examples=[{"lags": 45}]
    )
    trained_from: datetime = Field(description="Start of the first slot it was trained on")
    trained_to: datetime = Field(description="End of the last slot it was trained on")
    rank: int = Field(description="Rank of the learnt metric", examples=[12])
    size_bytes: int = Field(description="Bytes of its own artifact on disk; 0 where that is unknown", ge=0)
    held_out: dict[str, dict[str, float | None]] = Field(
        description="Accuracy one slot ahead on the held-out days: `candidate`, this model, beside `KR`, `profile`, "
        "`last_week` and, of a retrain run, the model then `active`, each by measure; null where that is undefined",
        examples=[{"candidate": {"rmse": 11.2, "mare": 0.118}, "profile": {"rmse": 13.9, "mare": 0.139}}],
    )
    decision: RunDecision | None = Field(
        description="Whether the retrain run activated it, and why; null without a run"
    )
    created_at: datetime = Field(description="When it was registered")
    activated_at: datetime | None = Field(description="When it last became the active one")
    retired_at: datetime | None = Field(description="When another version replaced it")
    damaged: str | None = Field(description="The damage that was found in its artifact; null for none")


class LagWeight(BaseModel):
    """The weight of one lag in the learnt metric."""

    lag: int = Field(description="Slots back, from 1 for the newest count", ge=1)
    weight: float = Field(description="Share of the metric's trace; all weights add up to 1", ge=0, le=1)


class ContextWeight(BaseModel):
    """The weight of one column of context in the metric of a network."""

    part: str = Field(description="Part of the context", examples=["deviations"])
    column: str = Field(description="Column of that part", examples=["deviation 1"])
    weight: float = Field(description="Share of the metric's trace; all weights add up to 1", ge=0, le=1)


class ModelVersionDetail(ModelVersionOut):
    """A trained model with its penalty, its training counts and the weights of its metric."""

    model_config = ConfigDict(json_schema_extra={"examples": [DETAIL_EXAMPLE]})

    mu: float | None = Field(description="Strength of the penalty that was chosen; null where the algorithm has none")
    n_iter: int | None = Field(description="Steps that were taken; null where the algorithm takes none")
    gaps: int = Field(description="Slots without a count in the training span")
    suspect: int = Field(description="Counts in the training span that were not learnt from")
    verdicts: list[ModelVerdict] = Field(description="What was found wrong with the training counts")
    data_fingerprint: str = Field(description="SHA-256 of the counts it was learnt from")
    fingerprint: str = Field(description="SHA-256 of its artifact's manifest")
    lag_weights: list[LagWeight] | None = Field(
        description="Lags with the largest weights; empty for NETWORK, which has `context_weights`; "
        "null where the artifact cannot be read"
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
        default=None, description="For a run of `best`, what won on the held-out slots, with the figures"
    )


class ModelList(BaseModel):
    """The trained models of a link, the newest first, a page of them."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"link_id": "Ba", "choice": None, "models": [EXAMPLE], "next_cursor": None}]}
    )

    link_id: str = Field(examples=["Ba"])
    choice: Literal["profile", "withdrawn"] | None = Field(
        description="Why no model is active: `profile`, because it won on the held-out days of a run of `best`, or "
        "`withdrawn`, because somebody withdrew the model; null where one is active or nothing was decided"
    )
    models: list[ModelVersionOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")
