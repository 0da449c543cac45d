"""The pulse of networks: how far all links together deviate from what is usual, slot by slot.

It takes the counts of all links, so slots that are over are kept for a while. The newest are always
computed anew, for their counts keep coming in.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.links.queries import link_keys
from model.network_model.context import NEIGHBOUR_LAGS
from model.network_model.deviations import mean_deviation
from model.network_model.network import Network
from model.network_model.series import NetworkCalendar

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

NEWEST = max(4, NEIGHBOUR_LAGS)  # slots that are never taken from what is kept; related links' lags are among them
KEPT_SECONDS = 600.0  # after which counts that were corrected or came late are seen
MOST_KEPT = 2048  # slots of a network; eight days as of some hundred different slots need fewer
NO_LINK = -1  # the key of a link that was deleted since the network learnt it


class Members(NamedTuple):
    """What a network's links are here, in the network's order."""

    keys: Slots
    scale: Array


class _Kept(NamedTuple):
    network: ReferenceType[Network]
    members: Members
    until: float
    slots: OrderedDict[int, tuple[float, float]]  # mean deviation by slot number, and until when it is kept


class NetworkDeviationCache:
    """Mean deviations of networks, for as long as the networks are in use."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._lock = threading.Lock()

    def members(self, session: Session, network: Network) -> Members:
        """Find a network's links in the database."""
        with self._lock:
            kept = self._of(network)
        if kept is not None and time.monotonic() < kept.until:
            return kept.members
        keys = link_keys(session, network.link_ids)
        numbers = np.array([keys.get(link_id, NO_LINK) for link_id in network.link_ids], dtype=np.int64)
        members = Members(numbers, network.profile.scale) if kept is None else kept.members._replace(keys=numbers)
        with self._lock:
            self._kept = {place: one for place, one in self._kept.items() if one.network() is not None}
            slots = kept.slots if kept is not None else OrderedDict[int, tuple[float, float]]()
            self._kept[id(network)] = _Kept(ref(network), members, time.monotonic() + KEPT_SECONDS, slots)
        return members

    def known(self, network: Network, slots: Iterable[int], newest: int) -> dict[int, float]:
        """Return what is kept of slots, by number, as of ``newest``."""
        now = time.monotonic()
        with self._lock:
            kept = self._of(network)
            if kept is None:
                return {}
            found = {slot: kept.slots[slot] for slot in slots if slot <= newest - NEWEST and slot in kept.slots}
        return {slot: value for slot, (value, until) in found.items() if now < until}

    def keep(self, network: Network, values: Mapping[int, float], newest: int) -> None:
        """Keep the mean deviations of slots that are over as of ``newest``."""
        until = time.monotonic() + KEPT_SECONDS
        with self._lock:
            kept = self._of(network)
            if kept is None:
                return
            for slot, value in values.items():
                if slot <= newest - NEWEST:
                    kept.slots[slot] = (value, until)
                    kept.slots.move_to_end(slot)
            while len(kept.slots) > MOST_KEPT:
                kept.slots.popitem(last=False)

    def _of(self, network: Network) -> _Kept | None:
        kept = self._kept.get(id(network))
        return kept if kept is not None and kept.network() is network else None  # a place in memory may serve again


def pulse_of(network: Network, members: Members, counts: Array, calendar: NetworkCalendar, slots: Slots) -> Array:
    """Return the mean deviations of slots, by their place in the calendar, from the counts of all links."""
    usual = network.profile.expected_counts[:, calendar.weekday[slots], calendar.slot_of_day[slots]]
    return mean_deviation((counts - usual) / members.scale[:, None])
