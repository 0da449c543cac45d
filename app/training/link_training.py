"""Train many links at once: files in, one artifact a link out, each link's failure its own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import joblib
from threadpoolctl import threadpool_limits

from app.counts.series import LinkSeries, as_count_series
from app.links.tables import folder_name
from app.training.network_stage import ACTIVE, NetworkStage
from app.training.parallel import run_parallel
from model.artifacts.artifact import DamagedArtifact, remove_leftovers
from model.artifacts.link_models import load_model, save_model
from model.error_measures import Measure
from model.estimators.descent import OnEvaluation
from model.estimators.kernel import Array
from model.link_model.detector_health import Health
from model.link_model.training import Rival, TrainingResult, train
from model.link_model.training_plan import TrainingPlan
from model.network_model.network import NetworkModel

State = Literal["trained", "kept", "failed"]


@dataclass(frozen=True)
class LinkOutcome:
    """What became of one link."""

    link_id: str
    state: State
    seconds: float
    reason: str = ""
    about: dict[str, Any] | None = None


def train_links(
    links: Iterable[LinkSeries],
    output: Path,
    plan: TrainingPlan,
    *,
    jobs: int = -1,
    resume: bool = False,
    capacities: Mapping[str, float] | None = None,
) -> Iterator[LinkOutcome]:
    """Train links in parallel processes and give the outcomes as they come.

    Artifacts are written whole or not at all: stopping in the middle leaves only whole ones. With
    ``resume`` a link is kept as it is when its artifact came from the same counts and plan.
    ``capacities`` says, by link, how many vehicles a slot can pass, for detector health.
    """
    known = capacities or {}
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    calls = (joblib.delayed(train_link)(link, output, plan, resume, known.get(link.link_id)) for link in links)
    yield from run_parallel(calls, jobs=jobs)


class ActiveModel(NamedTuple):
    """Where the artifact of a link's active model lies, to be measured beside the new one."""

    folder: Path
    fingerprint: str


def train_link(
    link: LinkSeries,
    output: Path,
    plan: TrainingPlan,
    resume: bool,
    capacity: float | None = None,
    active: ActiveModel | None = None,
    phase: Path | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> LinkOutcome:
    """Train one link and write its artifact; whatever goes wrong becomes its outcome.

    ``phase`` is the folder with the forecasts of an active network model for the held-out slots. An exception
    that ``on_evaluation`` raises ends the training.
    """
    started = time.perf_counter()
    folder = output / folder_name(link.link_id)
    fingerprint = data_fingerprint(link, capacity)
    try:
        if resume and (about := _kept(folder, fingerprint, plan)) is not None:
            return LinkOutcome(link.link_id, "kept", time.perf_counter() - started, about=about)
        with threadpool_limits(limits=1):  # joblib sees to it only when there are several processes
            rivals, others = rivals_of(link, active), forecasts_of_active(link, phase)
            result = train(as_count_series(link), plan, capacity, link.suspect, rivals, others, on_evaluation)
        about = describe(link, plan, result, fingerprint)
        save_model(folder, result.model, about)
    except Exception as problem:  # one link's failure must not stop the others
        return failure(link.link_id, started, problem)
    return LinkOutcome(link.link_id, "trained", time.perf_counter() - started, about=about)


def failure(link_id: str, started: float, problem: Exception) -> LinkOutcome:
    """Make an outcome of what went wrong."""
    reason = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
    return LinkOutcome(link_id, "failed", time.perf_counter() - started, reason)


def forecasts_of_active(link: LinkSeries, phase: Path | None) -> dict[str, Array]:
    """Return the forecasts of the link's active network model, if a stage computed them."""
    read = None if phase is None else NetworkStage.read(phase)
    if read is None:
        return {}
    return {method: expected[:, 0] for method, expected in read.forecasts(link).items() if method == ACTIVE}


def rivals_of(link: LinkSeries, active: ActiveModel | None) -> dict[str, Rival]:
    """Return the active model as one to compare with; a network model has a stage of its own."""
    if active is None:
        return {}
    try:
        model, about = load_model(active.folder, fingerprint=active.fingerprint)
        if isinstance(model, NetworkModel):
            return {}
        began = datetime.fromisoformat(about["trained_from"])
        return {"active": Rival(model, link.grid.containing(began) - link.first)}
    except (DamagedArtifact, OSError, KeyError, ValueError):  # a model that cannot be read cannot be better
        return {}


def data_fingerprint(link: LinkSeries, capacity: float | None = None) -> str:
    """Return a hash of the counts a model is learnt from, where in time they lie, and how they are judged."""
    digest = hashlib.sha256(f"{link.zone.key} {link.grid.slot_minutes} {link.first}".encode())
    digest.update(link.counts.astype("<f8").tobytes())
    digest.update(link.suspect.tobytes())
    if capacity is not None:
        digest.update(f"capacity {capacity!r}".encode())
    return digest.hexdigest()


def describe(link: LinkSeries, plan: TrainingPlan, result: TrainingResult, fingerprint: str) -> dict[str, Any]:
    """Return as JSON what a model was trained on, how, and how accurate it was."""
    return {
        **learnt_from(link, result.health, fingerprint),
        "plan": plan_as_json(plan),
        "mu": result.mu,
        "n_iter": result.n_iter,
        "rank": result.model.rank,
        "held_out": figures_as_json(result.held_out),
    }


def learnt_from(link: LinkSeries, health: Health, fingerprint: str) -> dict[str, Any]:
    """Return as JSON what a model was trained on."""
    return {
        "link_id": link.link_id,
        "zone": link.zone.key,
        "slot_minutes": link.grid.slot_minutes,
        "trained_from": link.grid.start(link.first).isoformat(),
        "trained_to": link.grid.start(link.first + len(link)).isoformat(),
        "gaps": link.gaps,
        "suspect": int(health.suspect.sum()),
        "verdicts": [verdict._asdict() for verdict in health.verdicts],
        "data_fingerprint": fingerprint,
    }


def figures_as_json(held_out: Mapping[str, Mapping[str, Measure]]) -> dict[str, Any]:
    """Return held-out figures as they are kept with a model, the model's own first."""
    return {
        method: {name: measure._asdict() for name, measure in held_out[method].items()}
        for method in sorted(held_out, key=lambda method: method != "candidate")
    }


def _kept(folder: Path, fingerprint: str, plan: TrainingPlan) -> dict[str, Any] | None:
    try:
        _, about = load_model(folder)
    except (DamagedArtifact, OSError):
        return None
    same = about.get("data_fingerprint") == fingerprint and about.get("plan") == plan_as_json(plan)
    return about if same else None


def plan_as_json(plan: TrainingPlan) -> dict[str, Any]:
    """Return a plan as it is kept with a model."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}
