"""Train the model of a link by itself, in its network, or the experts of the link, or refresh its network model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from app.counts.series import as_count_series
from app.registry.ensembles import AGGREGATION
from app.training.active_forecasts import forecast_active, forecast_served
from app.training.aligned_counts import examined
from app.training.link_training import (
    LinkTraining,
    TrainedModels,
    describe,
    expert_folder,
    figures_as_json,
    held_out_start,
    learnt_from,
)
from app.training.network_stage import NetworkStage, NetworkTraining
from app.training.train_in_network import TrainingInNetwork
from model.aggregation.experts import TRAINED_EXPERTS
from model.aggregation.state import Aggregation
from model.artifacts.link_models import load_model, save_model
from model.artifacts.network_models import save_network_model
from model.estimators.descent import OnEvaluation
from model.link_model.training import NotEnoughCounts, measure_methods, train
from model.link_model.training_plan import TrainingPlan
from model.network_model.network import ALGORITHM as NETWORK


def train_model(training: LinkTraining, folder: Path, on_evaluation: OnEvaluation | None = None) -> TrainedModels:
    """Train the models that a link's plan names and write their artifacts.

    An exception that ``on_evaluation`` raises ends the training.
    """
    if training.refused:
        raise ValueError(training.refused)
    for algorithm in TRAINED_EXPERTS:  # of an earlier training
        shutil.rmtree(expert_folder(folder, algorithm), ignore_errors=True)
    plan, stage = training.plan, None if training.stage is None else NetworkStage.read(training.stage)
    if isinstance(plan, TrainingPlan):
        begin = held_out_start(training.series, plan)
        served = forecast_served(training, forecast_active(training, stage, begin), begin)
        link = as_count_series(training.series)
        result = train(link, plan, training.capacity, training.series.suspect, served, on_evaluation)
        about = describe(training.series, training.capacity, plan, result)
        save_model(folder, result.model, about)
        return TrainedModels({plan.algorithm: about}, {})
    if training.stage is None:
        raise NotEnoughCounts("it has no counts")
    if stage is None:
        raise FileNotFoundError(f"there is no network stage in {training.stage}")
    if plan.refresh:
        return TrainedModels({NETWORK: _refresh(training, plan, stage, folder)}, {})
    return TrainingInNetwork(training, plan, stage, folder, on_evaluation).train()


def _refresh(training: LinkTraining, plan: NetworkTraining, stage: NetworkStage, folder: Path) -> dict[str, Any]:
    """Write the artifact of a model that newer counts joined; its held-out figures are those it had before."""
    link, active = training.series, training.active.get(NETWORK)
    model = stage.model(link.link_id)
    if model is None:
        raise NotEnoughCounts(stage.failed or "there is no network model of it, and no counts for one")
    before = {} if active is None else load_model(active.folder, fingerprint=active.fingerprint)[1]
    if before:
        learnt = before.get("refreshed", {}).get("learnt_to", before.get("trained_to"))
        refreshed = {"learnt_to": learnt, "held_out": f"carried over from the model learnt up to {learnt}"}
    else:
        refreshed = {"held_out": "not measured: new to the network"}
    nothing = np.full(1, np.nan)
    unknown = measure_methods(nothing, {"candidate": nothing, "profile": nothing}, link.grid.slot_minutes)
    about = {
        **learnt_from(link, training.capacity, examined(link, training.capacity)),
        "plan": before.get("plan", plan.as_json()),
        "mu": before.get("mu"),
        "n_iter": before.get("n_iter"),
        "rank": model.rank,
        "held_out": before.get("held_out") or figures_as_json(unknown),
        "network": stage.network,
        "young": not before,
        "refreshed": refreshed,
    }
    if training.has_ensemble:
        about[AGGREGATION] = before.get(AGGREGATION) or Aggregation.start().as_json()
    save_network_model(folder, model, stage.network, about)
    return about
