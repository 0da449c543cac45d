"""The inputs of a link's training, and the description that is kept with its model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from app.counts.series import LinkSeries
from app.training.network_stage import ActiveModel, NetworkTraining
from model.error_measures import Measure
from model.link_model.detector_health import Health
from model.link_model.training import TrainingResult
from model.link_model.training_plan import TrainingPlan

EXPERTS = "experts"  # among what is kept with an expert: the algorithms of all that were trained with it
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
    active : dict of str to ActiveModel
        The active models by algorithm, in the order of activation. New models are compared with what forecasts the
        link: the one activated last, or the aggregate of experts. A refresh is made from the network model.
    has_ensemble : bool, default=False
        Whether the link is forecast by the aggregate of its experts.
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
    active: dict[str, ActiveModel] = field(default_factory=dict)
    has_ensemble: bool = False
    stage: Path | None = None
    key: str = ""
    refused: str = ""


class TrainedModels(NamedTuple):
    """The description that is kept with each model of a link, as JSON, by algorithm.

    The artifact of the first is in the link's folder, those of others in `expert_folder`. ``starts`` has the weights
    of experts after the held-out days, by the name of the aggregate; it is empty where no experts were trained.
    """

    abouts: dict[str, dict[str, Any]]
    starts: dict[str, dict[str, Any]]


def held_out_start(link: LinkSeries, plan: TrainingPlan) -> int:
    """Return the first slot of the held-out days of a series."""
    return max(0, len(link) - plan.held_out_days * link.grid.slots_per_day)


def expert_folder(folder: Path, algorithm: str) -> Path:
    """Return the folder of an expert beside that of the link's best one; no id of a link has a plus sign."""
    return folder.with_name(f"{folder.name}+{algorithm}")


def algorithm_of(about: Mapping[str, Any]) -> str:
    """Return the algorithm of a model by what is kept with it."""
    return str(about["plan"]["algorithm"])


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
