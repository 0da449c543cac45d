"""Forecasts of a link's held-out slots by its active models, with which new models are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from app.counts.series import LinkSeries, as_count_series
from app.training.aligned_counts import examined
from app.training.link_training import LinkTraining
from app.training.network_stage import ACTIVE, ActiveModel, NetworkStage
from model.aggregation.experts import TRAINED_EXPERTS
from model.aggregation.state import Replay
from model.aggregation.warm_up import warm_up
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import load_model
from model.estimators.kernel import Array
from model.link_model.intervals import Bands
from model.link_model.training import ReferenceModel, forecast_reference
from model.network_model.network import ALGORITHM as NETWORK
from model.network_model.network import NetworkModel


def forecast_active(training: LinkTraining, stage: NetworkStage | None, held_out_start: int) -> dict[str, Array]:
    """Return forecasts of a link's slots by its active models, (n_slots, n_horizons) by algorithm.

    They are NaN before the held-out days. A model that cannot be read is left out. The network model was forecast by
    its stage.
    """
    forecasts = {}
    for algorithm, active in training.active.items():
        if algorithm == NETWORK:
            by_stage = {} if stage is None else stage.forecasts(training.series)
            if ACTIVE in by_stage:
                forecasts[algorithm] = by_stage[ACTIVE]
        elif (reference := _reference(training.series, active)) is not None:
            forecasts[algorithm] = forecast_reference(as_count_series(training.series), held_out_start, reference)
    return forecasts


def forecast_served(training: LinkTraining, active: Mapping[str, Array], held_out_start: int) -> dict[str, Array]:
    """Return the forecasts one slot ahead, (n_slots,), of what forecasts the link now, as the method "active".

    Without an active model there is none.
    """
    if training.has_ensemble:
        replayed = aggregate(training, [active], held_out_start, None)
        return {ACTIVE: whole(replayed.expected[0, :, 0], held_out_start)}
    served = active.get(next(reversed(training.active), ""))
    return {} if served is None else {ACTIVE: served[:, 0]}


def aggregate(
    training: LinkTraining, sets: Sequence[Mapping[str, Array]], held_out_start: int, bands: Bands | None
) -> Replay:
    """Aggregate a link's experts over the held-out slots, once with each of several sets of trained models.

    Models forecast all slots of the series, and are left out where they are no experts.
    """
    series = as_count_series(training.series)
    sound = series.without(examined(training.series, training.capacity).suspect)
    experts = [{name: of_set[name][held_out_start:] for name in TRAINED_EXPERTS if name in of_set} for of_set in sets]
    return warm_up(series, sound, held_out_start, experts, bands)


def whole(held_out: Array, held_out_start: int) -> Array:
    """Return forecasts of the held-out slots as forecasts of all slots, NaN before."""
    return np.concatenate([np.full((held_out_start, *held_out.shape[1:]), np.nan), held_out])


def _reference(link: LinkSeries, active: ActiveModel) -> ReferenceModel | None:
    try:
        model, about = load_model(active.folder, fingerprint=active.fingerprint)
        if isinstance(model, NetworkModel):
            return None
        began = datetime.fromisoformat(about["trained_from"])
        return ReferenceModel(model, link.grid.containing(began) - link.first)
    except (DamagedArtifact, OSError, KeyError, ValueError):  # a model that cannot be read is not compared with
        return None
