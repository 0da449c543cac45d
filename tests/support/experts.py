"""A small city whose links are forecast by ensembles of trained experts."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from starlette.testclient import TestClient

from app.core.database import writing
from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import City
from app.links.queries import link_or_404
from app.registry.activate import activate
from app.registry.register import register_model
from app.registry.store import ModelStore
from app.training.network_stage import BEST, NetworkTraining
from app.training.train_links import LinkOutcome, train_links
from model.network_model.plan import NetworkPlan
from tests.support.city import PLAN, SLOTS, TRAINED_DAYS, post, put_city, rows, small_city

NOW = TRAINED_DAYS * SLOTS  # the first slot without a count
EXPERTS = ("NETWORK", "KR_SML", "profile", "last_count", "scaled_profile")
NETWORK_PLAN = NetworkPlan(held_out_days=4, metric_rows=300, max_iter=2, network_rows=2000, n_neighbors=40)


class TrainedExperts(NamedTuple):
    """A city, the outcomes of training by link, and the folder of the artifacts."""

    city: City
    outcomes: dict[str, LinkOutcome]
    folder: Path


def train_experts(folder: Path) -> TrainedExperts:
    """Train the experts of all links of a small city on their first days."""
    city = small_city()
    series = [
        LinkSeries(link_id, city.grid, zone_named(city.zone), city.first_slot, counts[:NOW], np.zeros(NOW, bool))
        for link_id, counts in city.counts.items()
    ]
    outcomes = list(train_links(series, folder, NetworkTraining(BEST, NETWORK_PLAN, PLAN), jobs=1))
    assert {outcome.state for outcome in outcomes} == {"trained"}, outcomes
    return TrainedExperts(city, {outcome.link_id: outcome for outcome in outcomes}, folder)


def fill_with_experts(client: TestClient, trained: TrainedExperts) -> None:
    """Store the city's links and counts, and activate the experts of all links."""
    put_city(client, trained.city)
    runtime = client.app.state  # type: ignore[attr-defined]
    store = ModelStore(runtime.settings.model_store)
    for link_id, outcome in sorted(trained.outcomes.items()):
        for artifact in outcome.artifacts(trained.folder).values():
            with writing(runtime.engine) as session:
                link = link_or_404(session, link_id)
                activate(session, store, link, register_model(session, store, link, artifact).version)
    post(client, rows(trained.city, 0, NOW))
