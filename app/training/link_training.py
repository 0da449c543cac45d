"""The inputs of a link's training, and the description that is kept with its model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.counts.series import LinkSeries
from app.training.network_stage import ActiveModel, NetworkTraining
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import load_model
from model.error_measures import Measure
from model.link_model.detector_health import Health
from model.link_model.training import ReferenceModel, TrainingResult
from model.link_model.training_plan import TrainingPlan
from model.network_model.network import NetworkModel

Figures = Mapping[str, Mapping[str, Measure]]


@dataclass(frozen=True, eq=False)
class LinkTraining:
    """The inputs of the training of one link.

    Parameters
    ----------
    series : LinkSeries
    plan : TrainingPlan or NetworkTraining
        Of the link by itself, or in its network.
    capacity : float, optional
        Vehicles that a slot can pass, for detector health.
    active : ActiveModel, optional
        What the new model is compared with, or made from in a refresh.
    stage : Path, optional
        Folder of the link's network stage. Of a link that trains by itself it has the forecasts of an active
        network model; a link without one has no counts where the plan is that of a network.
    key : str
        Kept with the model, which is recognised by it when training is resumed.
    refused : str
        Why the link cannot be trained.
    """

    series: LinkSeries
    plan: TrainingPlan | NetworkTraining
    capacity: float | None = None
    active: ActiveModel | None = None
    stage: Path | None = None
    key: str = ""
    refused: str = ""


def active_reference(training: LinkTraining) -> dict[str, ReferenceModel]:
    """Return the active model to compare with; none if it is a network model, which its stage compares."""
    if training.active is None:
        return {}
    try:
        model, about = load_model(training.active.folder, fingerprint=training.active.fingerprint)
        if isinstance(model, NetworkModel):
            return {}
        began = datetime.fromisoformat(about["trained_from"])
        return {"active": ReferenceModel(model, training.series.grid.containing(began) - training.series.first)}
    except (DamagedArtifact, OSError, KeyError, ValueError):  # a model that cannot be read is not compared with
        return {}


def data_fingerprint(link: LinkSeries, capacity: float | None = None) -> str:
    """Return a hash of the counts a model is learnt from, where in time they lie, and how they are judged."""
    digest = hashlib.sha256(f"{link.zone.key} {link.grid.slot_minutes} {link.first}".encode())
    digest.update(link.counts.astype("<f8").tobytes())
    digest.update(link.suspect.tobytes())
    if capacity is not None:
        digest.update(f"capacity {capacity!r}".encode())
    return digest.hexdigest()


def describe(link: LinkSeries, capacity: float | None, plan: TrainingPlan, result: TrainingResult) -> dict[str, Any]:
    """Return as JSON what a model of a link by itself was trained on, how, and how accurate it was."""
    trained = {"plan": plan_as_json(plan), "mu": result.mu, "n_iter": result.n_iter, "rank": result.model.rank}
    return learnt_from(link, capacity, result.health) | trained | {"held_out": figures_as_json(result.held_out)}


def learnt_from(link: LinkSeries, capacity: float | None, health: Health) -> dict[str, Any]:
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
        "data_fingerprint": data_fingerprint(link, capacity),
    }


def figures_as_json(held_out: Figures) -> dict[str, Any]:
    """Return held-out figures as they are kept with a model, the model's own first."""
    return {
        method: {name: measure._asdict() for name, measure in held_out[method].items()}
        for method in sorted(held_out, key=lambda method: method != "candidate")
    }


def plan_as_json(plan: TrainingPlan) -> dict[str, Any]:
    """Return a plan as it is kept with a model."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}
