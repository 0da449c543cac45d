"""Artifacts of models that are trained quickly on the sample city."""

from pathlib import Path
from typing import Any

import numpy as np

from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import sample_city
from app.links.tables import folder_name
from app.training.link_training import LinkTraining
from app.training.train_links import train_link
from model.artifacts.link_models import load_model, save_model
from model.link_model.trained_model import TrainedModel
from model.link_model.training_plan import TrainingPlan

QUICK = TrainingPlan(algorithm="KR", lags=12, n_neighbors=8, held_out_days=4)


def city_series(links: int = 2, days: int = 14) -> list[LinkSeries]:
    city = sample_city(links=links, days=days)
    return [
        LinkSeries(
            link_id, city.grid, zone_named(city.zone), city.first_slot, counts, np.zeros(len(counts), dtype=bool)
        )
        for link_id, counts in city.counts.items()
    ]


def trained(folder: Path, series: LinkSeries, plan: TrainingPlan = QUICK) -> Path:
    """Train one link and return its artifact, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = train_link(LinkTraining(series, plan), folder)
    assert outcome.state == "trained", outcome.reason
    return folder / folder_name(series.link_id)


def copy_with_about(artifact: Path, target: Path, **about: Any) -> Path:
    """Copy an artifact with changed metadata."""
    model, stored = load_model(artifact)
    assert isinstance(model, TrainedModel)
    save_model(target, model, stored | about)
    return target
