"""Deviations from the profile, with what stands for those that are missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

MOST_DEVIATION = 2.0  # that a link may add to the network's mean, in its own units


def mean_deviation(deviations: Array) -> Array:
    """Return the network's mean deviation of each slot, over the links that have a count; NaN where none has.

    No link counts for more than twice its unit: one that is all but empty would outweigh all the others.
    """
    known = ~np.isnan(deviations)
    n = known.sum(axis=0)
    kept = np.clip(np.where(known, deviations, 0.0), -MOST_DEVIATION, MOST_DEVIATION)
    return np.where(n > 0, kept.sum(axis=0) / np.maximum(n, 1), np.nan)


class Deviations:
    """Deviations of the slots that are looked at, with what stands for those that are missing.

    A link without a count in a slot is taken to deviate as the network does, and the network without
    any as it did last before; before the first count there is the profile alone.
    """

    def __init__(self, slots: Slots, deviations: Array, pulse: Array, links: Slots) -> None:
        # One more column at the end is what place -1 finds: a slot before the first.
        self._slots = slots
        self._deviations = np.column_stack([deviations, np.full(len(deviations), np.nan)])
        self._pulse = np.append(_carried(pulse), 0.0)
        self.links = links

    def _places(self, slots: Slots) -> Slots:
        return np.where(slots >= 0, np.searchsorted(self._slots, slots), len(self._slots))

    def own(self, slots: Slots) -> Array:
        """Return the deviations of the links asked for, (n_asked, n_rows, n); NaN where there is no count."""
        return np.asarray(self._deviations[self.links][:, self._places(slots)])

    def network(self, slots: Slots) -> Array:
        """Return the network's mean deviations, (n_rows, n)."""
        return np.asarray(self._pulse[self._places(slots)])

    def filled(self, slots: Slots) -> Array:
        """Return the deviations of the links asked for, the network's where there is no count."""
        own = self.own(slots)
        return np.where(np.isnan(own), self.network(slots)[None], own)

    def others(self, slots: Slots, related: Sequence[Sequence[int]]) -> Array:
        """Return the mean deviations of related links, the network's where none of them has a count."""
        out = np.broadcast_to(self.network(slots)[None], (len(self.links), *slots.shape)).copy()
        having = [i for i, link in enumerate(self.links) if len(related[link])]
        if not having:
            return out
        groups = [related[self.links[i]] for i in having]
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        needed = np.unique(slots)
        values = self._deviations[np.concatenate(groups).astype(np.int64)][:, self._places(needed)]
        known = ~np.isnan(values)
        sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=0)
        n = np.add.reduceat(known.astype(np.float64), starts, axis=0)
        means = np.where(n > 0.0, sums / np.maximum(n, 1.0), np.nan)[:, np.searchsorted(needed, slots)]
        out[having] = np.where(np.isnan(means), out[having], means)
        return out

    def for_all(self, columns: Array) -> Array:
        """Return the same columns, (n_rows, n), for every link asked for."""
        return np.broadcast_to(columns[None], (len(self.links), *columns.shape))


def _carried(values: Array) -> Array:
    """Carry the last known value forward over gaps; zero before the first."""
    known = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], 0.0)
