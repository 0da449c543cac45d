"""Disturb counts of the test days: detectors that die or flicker, shifted levels, a closure, an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries

Array = NDArray[np.float64]

STEP_HOURS = 2  # each factor of a kind lasts so long, in turn
START_DAYS = 6  # disturbances begin within so many test days


class Kind(NamedTuple):
    """What counts are multiplied by, every two hours the next factor, and for how many hours; None is to the end."""

    name: str
    factors: tuple[float, ...]
    hours: int | None


KINDS = (
    Kind("x 0.5 to the end", (0.5,), None),
    Kind("zeros for 24 h", (0.0,), 24),
    Kind("x 0.3 for 8 h", (0.3,), 8),
    Kind("x 1.6 for 12 h", (1.6,), 12),
    Kind("x 0, x 1 every 2 h for 24 h", (0.0, 1.0), 24),
)


class Disturbance(NamedTuple):
    """A kind, and the slots that it lasts, by their numbers."""

    kind: Kind
    slots: range


def disturb(
    links: Mapping[str, LinkSeries], scored: Sequence[str], first_test_slot: int, seed: int
) -> tuple[dict[str, LinkSeries], dict[str, Disturbance]]:
    """Disturb every third of the scored links, in the order of their ids, with the kinds in turn.

    Return all links, and the disturbances by link. ``first_test_slot`` is the number of a slot, as is a
    link's ``first``.
    """
    rng = np.random.default_rng(seed)
    out, disturbances = dict(links), {}
    for index, link_id in enumerate(sorted(scored)[::3]):
        link, kind = links[link_id], KINDS[index % len(KINDS)]
        slots_per_day, end = link.grid.slots_per_day, link.first + len(link)
        start = first_test_slot + int(rng.integers(START_DAYS * slots_per_day))
        stop = end if kind.hours is None else min(start + kind.hours * slots_per_day // 24, end)
        factors = np.resize(np.repeat(kind.factors, STEP_HOURS * slots_per_day // 24), max(stop - start, 0))
        counts = link.counts.copy()
        counts[start - link.first : stop - link.first] *= factors
        out[link_id], disturbances[link_id] = replace(link, counts=counts), Disturbance(kind, range(start, stop))
    return out, disturbances
