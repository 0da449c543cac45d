"""Vehicles through the sample city: passed on downstream, held back at capacity, queued and discharged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.demo.demand import FloatArray
from app.demo.events import CAPACITY_LEFT, DIVERTED, Plan
from app.demo.network import SPACING_M, CityLink, Network

STRAIGHT_ON, TURNING = 0.55, 0.20  # share of a link's traffic that goes on into the next one
FED_AT_MOST = 0.72  # of a link's usual traffic; the rest enters along it
ENTERS_AT_LEAST = 0.10
ARRIVES = (0.7, 0.3)  # one and two slots after leaving the link upstream
DISPERSION_SHAPE = 300.0  # of the gamma that makes Poisson arrivals a little restless: signals, platoons
CAPACITY_SPREAD = 0.04  # either way: no two slots serve the same number
QUEUED_LENGTH_M = 7.5  # of road per waiting vehicle
PATIENCE = 5.0  # full links' worth of queue, beyond which drivers go elsewhere
SPILLBACK = 1.5  # a full link blocks more than the lane that leads to it
MOST_BLOCKED = 0.85


class Turns(NamedTuple):
    """Who feeds each link and whom it feeds, as (n_links, 3) indices with shares; 0 where there is none."""

    upstream: NDArray[np.int64]
    share_from: FloatArray
    downstream: NDArray[np.int64]
    share_to: FloatArray


class Roads(NamedTuple):
    """What each link can pass in an ordinary slot, in each slot, (n_slots, n_links), and hold in a queue."""

    capacity: FloatArray
    able: FloatArray
    storage: FloatArray


def turning_shares(network: Network, peaks: FloatArray) -> Turns:
    """Share of each link's vehicles that continue into each link downstream."""
    n = len(network.streets)
    none, nowhere = np.zeros((n, 3)), np.zeros((n, 3), dtype=np.int64)
    turns = Turns(nowhere, none, nowhere.copy(), none.copy())
    exits = np.zeros(n, dtype=np.int64)
    for i, feeders in enumerate(network.upstream):
        ways = [network.streets[u].direction == network.streets[i].direction for u in feeders]
        # A small road takes no more than its part of a big one's traffic.
        shares = [
            (STRAIGHT_ON if on else TURNING) * min(1.0, peaks[i] / peaks[u])
            for u, on in zip(feeders, ways, strict=True)
        ]
        fed = sum(share * peaks[u] for share, u in zip(shares, feeders, strict=True))
        scale = min(1.0, FED_AT_MOST * peaks[i] / fed) if fed else 0.0
        for slot, (u, share) in enumerate(zip(feeders, shares, strict=True)):
            turns.upstream[i, slot], turns.share_from[i, slot] = u, share * scale
            turns.downstream[u, exits[u]], turns.share_to[u, exits[u]] = i, share * scale
            exits[u] += 1
    return turns


def local_entries(usual: FloatArray, turns: Turns) -> FloatArray:
    """Traffic that joins along the link itself: what the usual demand has beyond what is passed on to it."""
    before = np.vstack([usual[:1], usual[:1], usual])
    passed = ARRIVES[0] * before[1:-1] + ARRIVES[1] * before[:-2]
    fed = np.zeros_like(usual)
    for way in range(3):
        fed += turns.share_from[:, way] * passed[:, turns.upstream[:, way]]
    return np.maximum(ENTERS_AT_LEAST * usual, usual - fed)


def build_roads(links: tuple[CityLink, ...], n_slots: int, plans: list[Plan], rng: np.random.Generator) -> Roads:
    """Return each link what it can pass and hold, works and incidents included."""
    capacity = np.array([link.passes for link in links])
    lanes = np.array([link.lanes for link in links])
    able = capacity * rng.uniform(1 - CAPACITY_SPREAD, 1 + CAPACITY_SPREAD, (n_slots, len(links)))
    for plan in plans:
        able[plan.rows, plan.link] *= CAPACITY_LEFT.get(plan.kind, 1.0)
    # Whole vehicles, or the counts would not be whole.
    return Roads(capacity, np.floor(able), np.floor(lanes * SPACING_M / QUEUED_LENGTH_M))


def flow_through(
    entries: FloatArray, roads: Roads, turns: Turns, plans: list[Plan], rng: np.random.Generator
) -> FloatArray:
    """Vehicles that pass each link in each slot, (n_slots, n_links), whole numbers."""
    n_slots, n_links = entries.shape
    restless = rng.gamma(DISPERSION_SHAPE, 1 / DISPERSION_SHAPE, entries.shape)
    passed = np.zeros((n_slots + 2, n_links))
    passed[:2] = np.minimum(entries[0], roads.able[0])  # two slots before the first: the night before
    queue, blocked = np.zeros(n_links), np.zeros(n_links)
    for t in range(n_slots):
        leaving = ARRIVES[0] * passed[t + 1] + ARRIVES[1] * passed[t]
        expected = entries[t] + (turns.share_from * leaving[turns.upstream]).sum(axis=1)
        _divert(expected, t, plans)
        waiting = queue + rng.poisson(expected * restless[t])
        passed[t + 2] = np.minimum(waiting, np.floor(roads.able[t] * (1 - blocked)))
        queue = np.minimum(waiting - passed[t + 2], PATIENCE * roads.storage)
        blocked = _spillback(queue, passed[t + 2], roads, turns)
    return passed[2:]


def _spillback(queue: FloatArray, passed: FloatArray, roads: Roads, turns: Turns) -> FloatArray:
    """Part of each link's capacity lost to full links downstream.

    A link that is full but flows at capacity takes as much as it ever did; one that is full and
    stands still takes nothing.
    """
    standing = np.clip(queue / roads.storage - 1, 0, 1) * np.clip(1 - passed / roads.capacity, 0, 1)
    lost: FloatArray = SPILLBACK * (turns.share_to * standing[turns.downstream]).sum(axis=1)
    return np.minimum(lost, MOST_BLOCKED)


def _divert(expected: FloatArray, t: int, plans: list[Plan]) -> None:
    for plan in plans:
        if plan.parallel is not None and plan.rows.start <= t < plan.rows.stop:
            moved = DIVERTED * expected[plan.link]
            expected[plan.link] -= moved
            expected[plan.parallel] += moved
