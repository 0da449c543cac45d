"""Rows of context, the features of a network model, computed by the same code in training and serving.

The slot of a row is the first one whose count is not known yet. A row is computed from counts of earlier
slots and from profiles of earlier days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.network_model.deviations import Deviations, mean_deviation
from model.network_model.profile import NetworkProfile
from model.network_model.series import DAY_TYPES, NetworkCalendar

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

RECENT = 32  # latest slots whose deviations from the profile are in a row
LATEST = 8  # the latest of them, with a column each
MEANS = (4, 8, 16, 32)
RELATIVE_MEANS = (1, 4, 8)  # slots over which a deviation relative to the profile is averaged
FLOOR = 0.1  # of a link's scale, added to the profile before division by it, which may be zero at night
NEIGHBOUR_LAGS = 3
NETWORK_MEANS = (4, 8, 16)
HARMONICS = 3
MOST_FILLED = 0.2  # share of the recent slots that may be missing when serving


@dataclass(frozen=True)
class ContextParts:
    """The parts of a row; each can be left out."""

    lags: bool = True
    yesterday: bool = True
    last_week: bool = True
    profile: bool = True
    deviations: bool = True
    time_of_day: bool = True
    day_type: bool = True
    upstream: bool = True
    junction: bool = True
    network: bool = True

    @classmethod
    def named(cls, names: Sequence[str]) -> ContextParts:
        """Return the parts with these names."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(names) - set(known))
        if unknown or not names:
            raise ValueError(f"context={list(names)!r} is refused; it must be some of {', '.join(known)}")
        return cls(**{name: name in names for name in known})

    @property
    def names(self) -> list[str]:
        """Names of the parts of a row."""
        return [field.name for field in fields(self) if getattr(self, field.name)]

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """Part and name of each column, in order."""
        every = {
            "lags": [f"count {lag}" for lag in (1, 2)],
            "yesterday": ["count yesterday", "deviation yesterday"],
            "last_week": ["count last week", "deviation last week"],
            "profile": ["profile before", "profile", "profile after", "profile of the day type"],
            "deviations": [
                *(f"deviation {lag}" for lag in range(1, LATEST + 1)),
                *(f"mean deviation {n}" for n in MEANS),
                *(f"relative deviation {n}" for n in RELATIVE_MEANS),
            ],
            "time_of_day": [f"{wave} {n}" for n in range(1, HARMONICS + 1) for wave in ("sine", "cosine")],
            "day_type": ["Monday to Friday", "Saturday", "Sunday or holiday"],
            "upstream": [f"upstream {lag}" for lag in range(1, NEIGHBOUR_LAGS + 1)],
            "junction": [f"junction {lag}" for lag in range(1, NEIGHBOUR_LAGS + 1)],
            "network": [
                *(f"network {lag}" for lag in range(1, NEIGHBOUR_LAGS + 1)),
                *(f"network mean {n}" for n in NETWORK_MEANS),
                "network yesterday",
                "network last week",
            ],
        }
        return [(part, column) for part in self.names for column in every[part]]


class ContextRows(NamedTuple):
    """Rows of context of several links, in units of each link's scale."""

    columns: Array  # (n_links, n_rows, n_columns)
    profile: Array  # (n_links, n_rows), of the slot that is forecast
    filled: NDArray[np.int64]  # (n_links, n_rows), number of recent slots without a count


class ContextSlots(NamedTuple):
    """The slots that rows are computed from."""

    recent: Slots  # (n_rows, RECENT), latest first
    target: Slots  # (n_rows,)
    yesterday: Slots  # (n_rows,), -1 where there is none
    last_week: Slots

    @property
    def slots(self) -> Slots:
        """All past slots among them, without duplicates."""
        every = np.unique(np.concatenate([self.recent.ravel(), self.yesterday, self.last_week]))
        return np.asarray(every[every >= 0])


def context_slots(calendar: NetworkCalendar, rows: Slots, horizon: int) -> ContextSlots:
    """Return the slots from which rows are computed to forecast ``horizon`` slots past each newest count."""
    recent = rows[:, None] - 1 - np.arange(RECENT)
    target = np.minimum(rows + horizon - 1, len(calendar) - 1)  # callers discard forecasts past the end
    before = [calendar.days_before(target, days) for days in (1, 7)]
    past = [np.where(slots < rows, slots, -1) for slots in before]  # at long horizons they may not be past
    return ContextSlots(np.where(recent >= 0, recent, -1), target, *past)


@dataclass(frozen=True)
class ContextSource:
    """The data that the rows of one day are computed from.

    Parameters
    ----------
    counts : (n_links, n_slots) array
    calendar : NetworkCalendar
        Of those slots and of the ones that are forecast.
    profile : NetworkProfile
        Of the same links, learnt from earlier days.
    junction, upstream : tuples of arrays of int
        For each link the indices of the other links at its junction, and upstream of it.
    network_deviations : mapping of slot to mean deviation, optional
        The network's mean deviations, if these links are only some of the network.
    parts : ContextParts
    """

    counts: Array
    calendar: NetworkCalendar
    profile: NetworkProfile
    junction: Sequence[Sequence[int]]
    upstream: Sequence[Sequence[int]]
    parts: ContextParts
    network_deviations: dict[int, float] | None = None

    @cached_property
    def _center(self) -> Array:
        return self.profile.center

    @cached_property
    def _scale(self) -> Array:
        return self.profile.scale

    def standardised(self, slots: Slots) -> Array:
        """Return the standardised counts of slots, (n_links, n_slots); NaN where there is none."""
        counts = np.where(slots >= 0, self.counts[:, slots], np.nan)
        return np.asarray((counts - self._center[:, None]) / self._scale[:, None])

    def standardised_profile(self, slots: Slots) -> Array:
        """Return the standardised profile of slots, (n_links, n_slots)."""
        return self._standardise(self.profile.expected_counts, slots)

    def _standardise(self, tables: Array, slots: Slots) -> Array:
        found = tables[:, self.calendar.weekday[slots], self.calendar.slot_of_day[slots]]
        return np.asarray((found - self._center[:, None]) / self._scale[:, None])

    def rows(self, rows: Slots, horizon: int, links: Slots | None = None) -> ContextRows:
        """Compute the rows of context of slots ``rows``, for some links or all."""
        at = context_slots(self.calendar, rows, horizon)
        slots = at.slots
        deviations = self.standardised(slots) - self.standardised_profile(slots)  # (n_links, n_slots)
        network_deviations = self._mean_deviations(slots, deviations)
        links = np.arange(len(self.counts)) if links is None else links
        lookup = Deviations(slots, deviations, network_deviations, links)
        columns: list[Array] = [getattr(self, f"_{part}")(at, lookup) for part in self.parts.names]
        own = lookup.own(at.recent)
        return ContextRows(
            np.concatenate(columns, axis=2),
            self.standardised_profile(at.target)[links],
            np.isnan(own).sum(axis=2) if own.size else np.zeros((len(links), len(rows)), dtype=np.int64),
        )

    def _mean_deviations(self, slots: Slots, deviations: Array) -> Array:
        if self.network_deviations is not None:
            return np.array([self.network_deviations.get(int(slot), np.nan) for slot in slots])
        return mean_deviation(deviations)

    def _lags(self, at: ContextSlots, lookup: Deviations) -> Array:
        return lookup.filled(at.recent[:, :2]) + self._profile_table(at.recent[:, :2], lookup)

    def _yesterday(self, at: ContextSlots, lookup: Deviations) -> Array:
        return self._count_and_deviation(at.yesterday, at, lookup)

    def _last_week(self, at: ContextSlots, lookup: Deviations) -> Array:
        return self._count_and_deviation(at.last_week, at, lookup)

    def _profile(self, at: ContextSlots, lookup: Deviations) -> Array:
        last = len(self.calendar) - 1
        near = [np.clip(at.target + step, 0, last) for step in (-1, 0, 1)]
        tables = [self.standardised_profile(slots)[lookup.links] for slots in near]
        tables.append(self._standardise(self.profile.by_day_type, at.target)[lookup.links])
        return np.stack(tables, axis=2)

    def _deviations(self, at: ContextSlots, lookup: Deviations) -> Array:
        recent = lookup.filled(at.recent)
        means = [recent[:, :, :n].mean(axis=2) for n in MEANS]
        # Relative deviations persist: a road that is a fifth busier than its profile stays so in the next slot.
        most = max(RELATIVE_MEANS)
        zero = (self._center / self._scale)[lookup.links]
        before = self._profile_table(at.recent[:, :most], lookup) + zero[:, None, None] + FLOOR
        to_come = self.standardised_profile(at.target)[lookup.links] + zero[:, None]
        shares = [recent[:, :, :n].sum(axis=2) / before[:, :, :n].sum(axis=2) for n in RELATIVE_MEANS]
        carried = [share * to_come for share in shares]
        return np.concatenate([recent[:, :, :LATEST], np.stack([*means, *carried], axis=2)], axis=2)

    def _time_of_day(self, at: ContextSlots, lookup: Deviations) -> Array:
        angle = 2.0 * np.pi * self.calendar.slot_of_day[at.target] / self.calendar.slots_per_day
        waves = [wave(n * angle) for n in range(1, HARMONICS + 1) for wave in (np.sin, np.cos)]
        return lookup.for_all(np.stack(waves, axis=1))

    def _day_type(self, at: ContextSlots, lookup: Deviations) -> Array:
        return lookup.for_all(np.eye(3)[DAY_TYPES[self.calendar.weekday[at.target]]])

    def _upstream(self, at: ContextSlots, lookup: Deviations) -> Array:
        return lookup.others(at.recent[:, :NEIGHBOUR_LAGS], self.upstream)

    def _junction(self, at: ContextSlots, lookup: Deviations) -> Array:
        return lookup.others(at.recent[:, :NEIGHBOUR_LAGS], self.junction)

    def _network(self, at: ContextSlots, lookup: Deviations) -> Array:
        recent = lookup.network(at.recent)
        means = [recent[:, :n].mean(axis=1) for n in NETWORK_MEANS]
        long_ago = [lookup.network(slots[:, None])[:, 0] for slots in (at.yesterday, at.last_week)]
        return lookup.for_all(np.column_stack([recent[:, :NEIGHBOUR_LAGS], *means, *long_ago]))

    def _count_and_deviation(self, slots: Slots, at: ContextSlots, lookup: Deviations) -> Array:
        deviation = lookup.filled(slots[:, None])[:, :, 0]
        # Where there is no such slot, the profile of the slot that is forecast is used.
        profile = self.standardised_profile(np.where(slots >= 0, slots, at.target))[lookup.links]
        return np.stack([profile + deviation, deviation], axis=2)

    def _profile_table(self, slots: Slots, lookup: Deviations) -> Array:
        """Return the standardised profile of a table of slots, (n_links, n_rows, n)."""
        flat = self.standardised_profile(np.maximum(slots, 0).ravel())[lookup.links]
        return np.asarray(flat.reshape(len(lookup.links), *slots.shape))
