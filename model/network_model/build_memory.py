"""Building of memories from the residuals of the linear base."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.estimators.fixed_point import FixedPoint
from model.network_model.local_memory import LocalMemory
from model.network_model.plan import NetworkPlan

Slots = NDArray[np.int64]

NETWORK_NEIGHBOURS = 10  # times the number of neighbours in a link's own memory


class MemoryRows(NamedTuple):
    """Projected rows and residuals of the base, (n_links, n_rows, …), and the slots of the rows."""

    points: NDArray[np.float32]
    missed: NDArray[np.float32]
    slots: Slots


def link_memory(past: MemoryRows, link: int, plan: NetworkPlan) -> LocalMemory:
    """Return the memory of a link's own rows."""
    kept = np.flatnonzero(~np.isnan(past.points[link]).any(axis=1) & ~np.isnan(past.missed[link, :, 0]))
    return LocalMemory(
        FixedPoint.of(past.points[link, kept].astype(np.float64)),
        FixedPoint.of(past.missed[link, kept].astype(np.float64)),
        np.full(len(kept), link, dtype=np.int32),
        past.slots[kept],
        plan.n_neighbors,
    )


def network_memory(past: MemoryRows, plan: NetworkPlan) -> LocalMemory:
    """Return a memory of rows of all links, a random sample if there are too many."""
    known = ~np.isnan(past.points).any(axis=2) & ~np.isnan(past.missed[:, :, 0])
    links, rows = np.nonzero(known)
    if len(links) > plan.network_rows:
        drawn = np.sort(np.random.default_rng(plan.random_state).choice(len(links), plan.network_rows, replace=False))
        links, rows = links[drawn], rows[drawn]
    return LocalMemory(
        FixedPoint.of(past.points[links, rows].astype(np.float64)),
        FixedPoint.of(past.missed[links, rows].astype(np.float64)),
        links.astype(np.int32),
        past.slots[rows],
        NETWORK_NEIGHBOURS * plan.n_neighbors,
    )
