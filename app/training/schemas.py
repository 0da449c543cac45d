"""Retrain runs in requests and responses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from app.core.errors import NO_NUL_RULE, worded
from app.http.examples import example_of, with_example
from app.http.requests import WHOLE
from app.links.schemas import LinkId
from app.registry.tables import Activation
from app.settings import Algorithm, ModelAlgorithm
from app.training.request import OF_NETWORKS, OF_ONE_LINK, Activate
from app.training.stage_progress import seconds_left
from app.training.tables import RetrainLink, RetrainRun

MOST_LINKS = 10_000
ESTIMATE_STEP = 5  # seconds; with a finer estimate the whole run would be sent to its watchers every second
STARTED = "2025-09-26T06:45:01Z"  # in examples
RunPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="The run's number")]
ContextPart = Literal[
    "lags",
    "yesterday",
    "last_week",
    "profile",
    "deviations",
    "time_of_day",
    "day_type",
    "upstream",
    "junction",
    "network",
]
RunState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
RunLinkState = Literal["waiting", "training", "done", "failed", "cancelled"]
Outcome = Literal["activated", "refused", "profile", "failed", "cancelled"]


class Parameters(BaseModel):
    """Training parameters; those that are left out have the defaults of ``flowcast train``.

    ``lags``, ``n_neighbors`` and ``bandwidth`` are for models of one link: NETWORK refuses them, and best passes
    them to KR_SML. ``context`` is for NETWORK and best. A refresh accepts ``days`` alone.
    """

    model_config = ConfigDict(extra="forbid")

    lags: Annotated[int, Field(ge=1, le=2000), WHOLE] | None = Field(
        None, description="Past slots a forecast looks at (45)"
    )
    n_neighbors: Annotated[int, Field(ge=1, le=500), WHOLE] | None = Field(None, description="Neighbours (20)")
    bandwidth: float | None = Field(None, gt=0, le=1000, strict=True, description="Width of the kernel (1.0)")
    held_out_days: Annotated[int, Field(ge=1, le=60), WHOLE] | None = Field(
        None, description="Last days that choose and judge (7)"
    )
    max_iter: Annotated[int, Field(ge=0, le=500), WHOLE] | None = Field(
        None, description="Most steps (25, of a network's metric 10)"
    )
    mu: list[Annotated[float, Field(ge=0, le=100, strict=True)]] | None = Field(
        None, min_length=1, max_length=10, description="Candidates for the weight of the trace"
    )
    level: float | None = Field(
        None, gt=0.0, lt=1.0, strict=True, description="Share of counts that the interval should contain (0.9)"
    )
    days: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = Field(
        None, description="Last days to learn from, and that network models remember (56)"
    )
    context: list[ContextPart] | None = Field(
        None, min_length=1, max_length=len(get_args(ContextPart)), description="Parts of a network's context (all)"
    )


def _left_out(names: Iterable[str]) -> dict[str, Any]:
    return {"properties": {"parameters": {"properties": {name: {"type": "null"} for name in names}}}}


# What `parameters_of` refuses by name, as JSON Schema.
FOR_NETWORKS: list[Any] = [
    {
        "if": {"properties": {"algorithm": {"const": "NETWORK"}}, "required": ["algorithm"]},
        "then": _left_out(OF_ONE_LINK),
        "else": {"properties": {"refresh": {"const": False}}},
    },
    {
        "if": {"properties": {"algorithm": {"enum": ["NETWORK", "best"]}}},  # also where it is left out
        "else": _left_out(OF_NETWORKS),
    },
    {
        "if": {"properties": {"refresh": {"const": True}}, "required": ["refresh"]},
        "then": _left_out(name for name in Parameters.model_fields if name != "days"),
    },
]


class NewRun(BaseModel):
    """A retrain run to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"links": ["Ba"], "algorithm": "best", "activate": "if_better"}],
            "allOf": FOR_NETWORKS,
        },
    )

    links: list[LinkId] | Literal["all"] = Field(description="Which links: their ids, or all", max_length=MOST_LINKS)
    algorithm: Algorithm = Field(
        "best",
        description="What to train; NETWORK learns from all links of a time zone at once, and best trains the experts "
        "of each link, NETWORK and KR_SML, and activates those that make its ENSEMBLE better",
    )
    parameters: Parameters | None = Field(None, description="How to train")
    refresh: bool = Field(
        False,
        strict=True,
        description="With NETWORK: add new counts to the profiles and memories of active network models, include links "
        "without a model, and learn nothing anew; the new versions are active at once, unless `activate` is `never`",
    )
    activate: Activate = Field("if_better", description="When a candidate becomes the active model")


class RunLink(BaseModel):
    """One link of a run."""

    link_id: str = Field(examples=["Ba"])
    state: RunLinkState = Field(examples=["training"])
    outcome: Outcome | None = Field(
        description="Result of the link; `activated` where one of several candidates was; `profile`: all were refused "
        "because the link's profile won on the held-out days, which a run of `best` records as the choice where no "
        "model is active"
    )
    reason: str | None = Field(description="Why; of several candidates each with its version")
    version: int | None = Field(
        description="The candidate's version in the registry; of several candidates that of the first one activated, "
        "or of the best by itself"
    )
    versions: dict[str, int] | None = Field(
        description="The candidates' versions by algorithm; null in runs before there were several",
        examples=[{"NETWORK": 3, "KR_SML": 4}],
    )
    figures: dict[str, dict[str, float | None]] | None = Field(
        description="Candidate, active, KR, profile, last_week, and of networks NETWORK, its base alone and KR_SML, "
        "on the same held-out slots; of `best` also the aggregates of experts: `ENSEMBLE`, the candidate, with all "
        "that were trained, `ENSEMBLE with …` with one of them, and `ENSEMBLE before` with none"
    )
    started_at: datetime | None = Field(examples=[STARTED])
    finished_at: datetime | None

    @classmethod
    def of(cls, row: RetrainLink, link_id: str) -> RunLink:
        """Return a link as it is stored."""
        names = [name for name in cls.model_fields if name != "link_id"]
        return cls(link_id=link_id, **{name: getattr(row, name) for name in names})


class Progress(BaseModel):
    """The progress of a run, in links."""

    total: int = Field(examples=[1])
    waiting: int = 0
    training: int = Field(0, examples=[1])
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class Stage(BaseModel):
    """The stage of a run: links are trained together in their networks first, then each by itself."""

    name: Literal["network", "links"] = Field(examples=["links"])
    share: float = Field(ge=0, le=1, description="Share of the stage that is done", examples=[0.35])
    estimated_seconds_left: int | None = Field(
        description="Estimated from the time that the stage took so far; null before anything is done", examples=[80]
    )

    @classmethod
    def of(cls, run: RetrainRun, progress: Progress) -> Stage | None:
        """Return the stage of a running run."""
        if run.state != "running" or run.stage is None or run.stage_started_at is None or run.heartbeat_at is None:
            return None
        over = progress.done + progress.failed + progress.cancelled
        share = over / progress.total if run.stage_share is None else run.stage_share
        left = seconds_left(share, (run.heartbeat_at - run.stage_started_at).total_seconds())
        rounded = None if left is None else ESTIMATE_STEP * round(left / ESTIMATE_STEP)
        return cls(name=run.stage, share=round(share, 2), estimated_seconds_left=rounded)


class RunOut(BaseModel):
    """A retrain run."""

    run_id: int = Field(examples=[1])
    state: RunState = Field(examples=["running"])
    progress: Progress
    stage: Stage | None = Field(
        description="Of a run whose state is `running`; null otherwise", examples=[example_of(Stage)]
    )
    algorithm: Algorithm = Field(examples=["best"])
    parameters: dict[str, Any]
    activate: Activate
    requested_by: str = Field(
        description="Id of the key, or `schedule`, `refresh` or `trigger` without one", examples=["3f9c0a1b2d4e"]
    )
    occasion: str | None
    requested_at: datetime
    started_at: datetime | None = Field(examples=[STARTED])
    finished_at: datetime | None
    cancel_requested: bool
    detail: str | None = Field(
        description="Why the run failed as a whole, waits, or is trained locally instead of on the cluster"
    )

    @classmethod
    def facts(cls, run: RetrainRun, states: dict[str, int]) -> dict[str, Any]:
        """Return the fields of a run as it is stored."""
        progress = Progress(total=sum(states.values()), **states)
        given = {"run_id": run.id, "progress": progress, "stage": Stage.of(run, progress)}
        return {name: getattr(run, name) for name in RunOut.model_fields if name not in given} | given


@with_example
class RunDetail(RunOut):
    """A retrain run with its links."""

    links: list[RunLink]


@with_example
class AcceptedRun(RunDetail):
    """A queued run, and the links left out of it."""

    already_running: dict[str, int] = Field(description="Links left out because they are in another run, and in which")


@with_example
class RunPage(BaseModel):
    """Runs, the newest first."""

    runs: list[RunOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")


@with_example
class ActivationOut(BaseModel):
    """The activation of a version, or the withdrawal of the active one."""

    link_id: str = Field(examples=["Ba"])
    version: int | None = Field(
        description="Version that was activated; null where the active model was withdrawn", examples=[1]
    )
    previous_version: int | None = Field(examples=[2])
    activated_at: datetime
    activated_by: str = Field(examples=["3f9c0a1b2d4e"])
    reason: str | None = Field(examples=["roll back"])
    figures: dict[str, dict[str, float | None]] | None

    @classmethod
    def of(cls, row: Activation, link_id: str) -> ActivationOut:
        """Return an activation as it is stored."""
        names = [name for name in cls.model_fields if name not in ("link_id", "version")]
        return cls(link_id=link_id, version=row.version or None, **{name: getattr(row, name) for name in names})


@with_example
class ActivationPage(BaseModel):
    """A link's history of activations, the newest first."""

    activations: list[ActivationOut]
    next_cursor: str | None


class ActivationReason(BaseModel):
    """The reason for an activation."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "roll back"}]})

    reason: Annotated[str, Field(max_length=500, pattern=worded(r"^[^\x00]*$", NO_NUL_RULE))] | None = None


class Withdrawal(ActivationReason):
    """The reason for a withdrawal, and which model is withdrawn."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"algorithm": "KR_SML", "reason": "new lane"}]})

    algorithm: ModelAlgorithm | None = Field(None, description="Withdraw the model of this algorithm alone")
