"""A small city with trained models, put into the service under test."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from app.core.database import writing
from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import City, links_geojson, sample_city
from app.links.queries import link_or_404
from app.links.tables import folder_name
from app.registry.activate import activate
from app.registry.register import register_model
from app.registry.store import ModelStore
from app.training.link_training import LinkTraining
from app.training.train_links import train_link
from model.link_model.training_plan import TrainingPlan

SLOTS = 96
TRAINED_DAYS = 15
PLAN = TrainingPlan(n_neighbors=8, lags=12, max_iter=3, held_out_days=4, mu=(1e-3,))


def small_city() -> City:
    return sample_city(links=3, days=18, seed=5)


def train_city(city: City, output: Path, plan: TrainingPlan = PLAN, days: int = TRAINED_DAYS) -> None:
    """Train every link on its first days."""
    output.mkdir(parents=True, exist_ok=True)
    for link_id, counts in city.counts.items():
        n = days * SLOTS
        series = LinkSeries(
            link_id, city.grid, zone_named(city.zone), city.first_slot, counts[:n], np.zeros(n, dtype=np.bool_)
        )
        outcome = train_link(LinkTraining(series, plan), output)
        assert outcome.state == "trained", outcome.reason


def put_city(client: TestClient, city: City) -> None:
    """Store the city's links."""
    response = client.post("/v1/links", json=links_geojson(city))
    assert response.status_code in (200, 201), response.text


def slot_start(city: City, i: int) -> str:
    return city.grid.start(city.first_slot + i).strftime("%Y-%m-%dT%H:%M:%SZ")


def rows(city: City, first: int, last: int, link_ids: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the counts of slots from ``first`` to before ``last``, gaps left out."""
    return [
        {"link_id": link_id, "slot_start": slot_start(city, i), "count": int(counts[i])}
        for link_id, counts in city.counts.items()
        if link_ids is None or link_id in link_ids
        for i in range(first, last)
        if not np.isnan(counts[i])
    ]


def post(client: TestClient, counts: list[dict[str, Any]]) -> dict[str, Any]:
    response = client.post("/v1/counts", json={"counts": counts})
    assert response.status_code == 200, response.text
    return dict(response.json())


def register_models(client: TestClient, folder: Path, link_ids: list[str], *, active: bool = True) -> list[int]:
    """Register artifacts, activate them if ``active``, and return their versions."""
    runtime = client.app.state  # type: ignore[attr-defined]
    store = ModelStore(runtime.settings.model_store)
    versions = []
    for link_id in link_ids:
        with writing(runtime.engine) as session:
            link = link_or_404(session, link_id)
            version = register_model(session, store, link, folder / folder_name(link_id)).version
            if active:
                activate(session, store, link, version, now=datetime.now(UTC))
            versions.append(version)
    return versions
