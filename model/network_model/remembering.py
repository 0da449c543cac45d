"""Memories made of what the base left over, day by day."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.estimators.fixed_point import FixedPoint
from model.network_model.local_memory import LocalMemory
from model.network_model.plan import NetworkPlan

Slots = NDArray[np.int64]

NETWORK_NEIGHBOURS = 10  # times as many as of a link's own moments


class Remembered(NamedTuple):
    """What the base left over, (n_links, n_rows, …), and the slots of the rows."""

    places: NDArray[np.float32]
    missed: NDArray[np.float32]
    slots: Slots


def own_memory(past: Remembered, link: int, plan: NetworkPlan) -> LocalMemory:
    """Remember a link's own moments."""
    kept = np.flatnonzero(~np.isnan(past.places[link]).any(axis=1) & ~np.isnan(past.missed[link, :, 0]))
    return LocalMemory(
        FixedPoint.of(past.places[link, kept].astype(np.float64)),
        FixedPoint.of(past.missed[link, kept].astype(np.float64)),
        np.full(len(kept), link, dtype=np.int32),
        past.slots[kept],
        plan.n_neighbors,
    )


def network_memory(past: Remembered, plan: NetworkPlan) -> LocalMemory:
    """Remember moments of all links, drawn evenly over links and days where there are too many."""
    known = ~np.isnan(past.places).any(axis=2) & ~np.isnan(past.missed[:, :, 0])
    links, rows = np.nonzero(known)
    if len(links) > plan.network_rows:
        drawn = np.sort(np.random.default_rng(plan.random_state).choice(len(links), plan.network_rows, replace=False))
        links, rows = links[drawn], rows[drawn]
    return LocalMemory(
        FixedPoint.of(past.places[links, rows].astype(np.float64)),
        FixedPoint.of(past.missed[links, rows].astype(np.float64)),
        links.astype(np.int32),
        past.slots[rows],
        NETWORK_NEIGHBOURS * plan.n_neighbors,
    )
