"""Models of a large network, quickly: a few links are trained and their models copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from app.core.holidays import holiday_region
from app.core.slots import zone_named
from app.counts.series import network_calendar
from app.demo.city import City
from app.registry.store import place_of
from model.artifacts.network_models import save_network, save_network_model
from model.network_model.network import ALGORITHM, Network
from model.network_model.plan import NetworkPlan
from model.network_model.profile import NetworkProfile
from model.network_model.series import NetworkSeries
from model.network_model.training import train_network

AT_A_JUNCTION = 4
PLAN = NetworkPlan(metric_rows=1200, max_iter=3)


class SavedModel(NamedTuple):
    """A link's model in the store, with the values of its row."""

    fingerprint: str
    algorithm: str
    rank: int
    about: dict[str, Any]


def save_networks_models(
    city: City, days: int, link_ids: Sequence[str], store: Path, notes: Console
) -> list[SavedModel]:
    """Train the city's links on its first days, and save a network of as many links as there are ids."""
    trained = train_network(_series(city, days), PLAN)
    n, few = len(link_ids), len(city.counts)
    source = np.arange(n) % few
    small = trained.network
    profile = small.profile
    network = Network(
        tuple(link_ids),
        np.arange(n) // AT_A_JUNCTION,
        tuple(_upstream(small, i, few, n) for i in range(n)),
        small.parts,
        NetworkProfile(profile.expected_counts[source], profile.by_day_type[source]),
        small.base,
        small.components,
        small.memory,
        small.holidays,
    )
    fingerprint = save_network(store, network, {})
    saved = []
    for i, link_id in enumerate(track(link_ids, "writing models", console=notes, transient=True)):
        model = trained.models[i % few]
        if model is None:
            raise ValueError("a link of the sample city has no counts")
        about = _about(city, days, link_id)
        folder = store / place_of(link_id, 1)
        folder.parent.mkdir()
        own = save_network_model(folder, replace(model, network=network, link=i), fingerprint, about)
        saved.append(SavedModel(own, ALGORITHM, model.rank, about | {"network": fingerprint}))
    return saved


def _series(city: City, days: int) -> NetworkSeries:
    ids, n = tuple(city.counts), days * city.grid.slots_per_day
    holidays = holiday_region(city.zone)
    return NetworkSeries(
        ids,
        np.stack([city.counts[link_id][:n] for link_id in ids]),
        network_calendar(city.grid, zone_named(city.zone), city.first_slot, n, holidays),
        np.zeros(len(ids), dtype=np.int64),
        tuple(tuple(ids.index(above) for above in link.upstream if above in ids) for link in city.links),
        city.first_slot,
        holidays,
    )


def _upstream(small: Network, i: int, few: int, n: int) -> tuple[int, ...]:
    return tuple(above for link in small.upstream[i % few] if (above := i - i % few + link) < n)


def _about(city: City, days: int, link_id: str) -> dict[str, Any]:
    n = days * city.grid.slots_per_day
    plan = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(PLAN).items()}
    return {
        "link_id": link_id,
        "zone": city.zone,
        "slot_minutes": city.grid.slot_minutes,
        "trained_from": city.grid.start(city.first_slot).isoformat(),
        "trained_to": city.grid.start(city.first_slot + n).isoformat(),
        "gaps": 0,
        "suspect": 0,
        "verdicts": [],
        "data_fingerprint": "",
        "plan": plan,
        "held_out": {},
    }
