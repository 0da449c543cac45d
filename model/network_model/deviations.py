"""Deviations from the profile, with replacements for missing ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

MAX_DEVIATION = 2.0  # to which a link's deviation is clipped in the network's mean, in its own units


def mean_deviation(deviations: Array) -> Array:
    """Return the network's mean deviation of each slot, over the links that have a count; NaN where none has.

    Deviations are clipped at two units, because a link with hardly any traffic would outweigh all others.
    """
    known = ~np.isnan(deviations)
    n = known.sum(axis=0)
    kept = np.clip(np.where(known, deviations, 0.0), -MAX_DEVIATION, MAX_DEVIATION)
    return np.where(n > 0, kept.sum(axis=0) / np.maximum(n, 1), np.nan)


class Deviations:
    """Deviations of some slots, with replacements for missing ones.

    A link's missing deviation is replaced by the network's in the same slot, and a missing deviation of
    the network by its latest one before, or 0.
    """

    def __init__(self, slots: Slots, deviations: Array, network_deviation: Array, links: Slots) -> None:
        # The last column is that of slot -1, which is before the first slot.
        self._slots = slots
        self._deviations = np.column_stack([deviations, np.full(len(deviations), np.nan)])
        self._network_deviation = np.append(_forward_filled(network_deviation), 0.0)
        self.links = links

    def _columns_of(self, slots: Slots) -> Slots:
        return np.where(slots >= 0, np.searchsorted(self._slots, slots), len(self._slots))

    def own(self, slots: Slots) -> Array:
        """Return the deviations of the links, (n_links, n_rows, n); NaN where there is no count."""
        return np.asarray(self._deviations[self.links][:, self._columns_of(slots)])

    def network(self, slots: Slots) -> Array:
        """Return the network's mean deviations, (n_rows, n)."""
        return np.asarray(self._network_deviation[self._columns_of(slots)])

    def filled(self, slots: Slots) -> Array:
        """Return the deviations of the links, the network's where there is no count."""
        own = self.own(slots)
        return np.where(np.isnan(own), self.network(slots)[None], own)

    def others(self, slots: Slots, related: Sequence[Sequence[int]]) -> Array:
        """Return the mean deviations of related links, the network's where none of them has a count."""
        out = np.broadcast_to(self.network(slots)[None], (len(self.links), *slots.shape)).copy()
        with_related = [i for i, link in enumerate(self.links) if len(related[link])]
        if not with_related:
            return out
        groups = [related[self.links[i]] for i in with_related]
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        needed = np.unique(slots)
        values = self._deviations[np.concatenate(groups).astype(np.int64)][:, self._columns_of(needed)]
        known = ~np.isnan(values)
        sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=0)
        n = np.add.reduceat(known.astype(np.float64), starts, axis=0)
        means = np.where(n > 0.0, sums / np.maximum(n, 1.0), np.nan)[:, np.searchsorted(needed, slots)]
        out[with_related] = np.where(np.isnan(means), out[with_related], means)
        return out

    def for_all(self, columns: Array) -> Array:
        """Return the same columns, (n_rows, n), for every link."""
        return np.broadcast_to(columns[None], (len(self.links), *columns.shape))


def _forward_filled(values: Array) -> Array:
    """Fill gaps with the last known value before them, or 0."""
    known = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], 0.0)
