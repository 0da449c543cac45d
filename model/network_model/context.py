"""What a forecast looks at, computed as it was known at its slot, in training as in serving.

A row is a moment: its slot is the first one whose count is not known yet. Everything in it comes from
counts of earlier slots and from profiles of earlier days, by this one path.
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

RECENT = 32  # latest slots whose deviations from the profile a row looks at
LATEST = 8  # of which each has its own column
MEANS = (4, 8, 16, 32)
RELATIVE_MEANS = (1, 4, 8)  # over which a deviation relative to the profile is carried to the slot to come
FLOOR = 0.1  # of a link's scale, added to the profile that a deviation is relative to: an empty road has none
NEIGHBOUR_LAGS = 3
NETWORK_MEANS = (4, 8, 16)
HARMONICS = 3
MOST_FILLED = 0.2  # share of the recent slots that may be missing when serving


@dataclass(frozen=True)
class ContextParts:
    """Which parts a row is made of; each can be left out."""

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
        """Take the parts with these names, and no other."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(names) - set(known))
        if unknown or not names:
            raise ValueError(f"context={list(names)!r} is refused; it must be some of {', '.join(known)}")
        return cls(**{name: name in names for name in known})

    @property
    def names(self) -> list[str]:
        """The parts that are in."""
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


class Rows(NamedTuple):
    """Rows of context of several links, in units of each link's scale."""

    columns: Array  # (n_links, n_rows, n_columns)
    usual: Array  # (n_links, n_rows), the profile of the slot that is forecast
    filled: NDArray[np.int64]  # (n_links, n_rows), how many of the recent slots had no count


class Moment(NamedTuple):
    """The slots that rows look at, found once for all horizons."""

    recent: Slots  # (n_rows, RECENT), latest first
    target: Slots  # (n_rows,)
    yesterday: Slots  # (n_rows,), -1 where there is none
    last_week: Slots

    @property
    def slots(self) -> Slots:
        """Every past slot that is looked at."""
        every = np.unique(np.concatenate([self.recent.ravel(), self.yesterday, self.last_week]))
        return np.asarray(every[every >= 0])


def moment(calendar: NetworkCalendar, rows: Slots, horizon: int) -> Moment:
    """Find the slots that rows look at to forecast a slot, ``horizon`` ahead of each row's newest count."""
    recent = rows[:, None] - 1 - np.arange(RECENT)
    target = np.minimum(rows + horizon - 1, len(calendar) - 1)  # who asks past the calendar's end has no use for it
    before = [calendar.days_before(target, days) for days in (1, 7)]
    past = [np.where(slots < rows, slots, -1) for slots in before]  # at long horizons yesterday may not be over
    return Moment(np.where(recent >= 0, recent, -1), target, *past)


@dataclass(frozen=True)
class ContextSource:
    """Everything that rows of one day are made from.

    Parameters
    ----------
    counts : (n_links, n_slots) array
    calendar : NetworkCalendar
        Of those slots and of the ones that are forecast.
    profile : NetworkProfile
        Of the same links, learnt from earlier days.
    junction, upstream : tuples of arrays of int
        For each link the places of the other links at its junction, and upstream of it.
    pulse : mapping of slot to mean deviation, optional
        The network's mean deviations, where these links are only some of the network.
    parts : ContextParts
    """

    counts: Array
    calendar: NetworkCalendar
    profile: NetworkProfile
    junction: Sequence[Sequence[int]]
    upstream: Sequence[Sequence[int]]
    parts: ContextParts
    pulse: dict[int, float] | None = None

    @cached_property
    def _center(self) -> Array:
        return self.profile.center

    @cached_property
    def _scale(self) -> Array:
        return self.profile.scale

    def standardised(self, slots: Slots) -> Array:
        """Return counts of slots in units of each link's scale, (n_links, n_slots); NaN where there is none."""
        counts = np.where(slots >= 0, self.counts[:, slots], np.nan)
        return np.asarray((counts - self._center[:, None]) / self._scale[:, None])

    def usual(self, slots: Slots) -> Array:
        """Return the profile of slots in units of each link's scale."""
        return self._scaled(self.profile.expected_counts, slots)

    def _scaled(self, tables: Array, slots: Slots) -> Array:
        found = tables[:, self.calendar.weekday[slots], self.calendar.slot_of_day[slots]]
        return np.asarray((found - self._center[:, None]) / self._scale[:, None])

    def rows(self, rows: Slots, horizon: int, asked: Slots | None = None) -> Rows:
        """Make rows of context at slots ``rows``, for the links asked for or all."""
        at = moment(self.calendar, rows, horizon)
        slots = at.slots
        deviations = self.standardised(slots) - self.usual(slots)  # (n_links, n_slots looked at)
        pulse = self._pulse(slots, deviations)
        links = np.arange(len(self.counts)) if asked is None else asked
        look = Deviations(slots, deviations, pulse, links)
        columns = [self._part(part, at, look) for part in self.parts.names]
        own = look.own(at.recent)
        return Rows(
            np.concatenate(columns, axis=2),
            self.usual(at.target)[links],
            np.isnan(own).sum(axis=2) if own.size else np.zeros((len(links), len(rows)), dtype=np.int64),
        )

    def _pulse(self, slots: Slots, deviations: Array) -> Array:
        if self.pulse is not None:
            return np.array([self.pulse.get(int(slot), np.nan) for slot in slots])
        return mean_deviation(deviations)

    def _part(self, part: str, at: Moment, look: Deviations) -> Array:
        made = getattr(self, f"_{part}")(at, look)
        return np.asarray(made)

    def _lags(self, at: Moment, look: Deviations) -> Array:
        return look.filled(at.recent[:, :2]) + self.usual_at(at.recent[:, :2], look)

    def _yesterday(self, at: Moment, look: Deviations) -> Array:
        return self._count_and_deviation(at.yesterday, at, look)

    def _last_week(self, at: Moment, look: Deviations) -> Array:
        return self._count_and_deviation(at.last_week, at, look)

    def _profile(self, at: Moment, look: Deviations) -> Array:
        last = len(self.calendar) - 1
        near = [np.clip(at.target + step, 0, last) for step in (-1, 0, 1)]
        tables = [self.usual(slots)[look.links] for slots in near]
        tables.append(self._scaled(self.profile.by_day_type, at.target)[look.links])
        return np.stack(tables, axis=2)

    def _deviations(self, at: Moment, look: Deviations) -> Array:
        recent = look.filled(at.recent)
        means = [recent[:, :, :n].mean(axis=2) for n in MEANS]
        # A road a fifth busier than usual will be so in the next slot, too, whatever is usual then.
        most = max(RELATIVE_MEANS)
        zero = (self._center / self._scale)[look.links]
        before = self.usual_at(at.recent[:, :most], look) + zero[:, None, None] + FLOOR
        to_come = self.usual(at.target)[look.links] + zero[:, None]
        shares = [recent[:, :, :n].sum(axis=2) / before[:, :, :n].sum(axis=2) for n in RELATIVE_MEANS]
        carried = [share * to_come for share in shares]
        return np.concatenate([recent[:, :, :LATEST], np.stack([*means, *carried], axis=2)], axis=2)

    def _time_of_day(self, at: Moment, look: Deviations) -> Array:
        angle = 2.0 * np.pi * self.calendar.slot_of_day[at.target] / self.calendar.slots_per_day
        waves = [wave(n * angle) for n in range(1, HARMONICS + 1) for wave in (np.sin, np.cos)]
        return look.for_all(np.stack(waves, axis=1))

    def _day_type(self, at: Moment, look: Deviations) -> Array:
        return look.for_all(np.eye(3)[DAY_TYPES[self.calendar.weekday[at.target]]])

    def _upstream(self, at: Moment, look: Deviations) -> Array:
        return look.others(at.recent[:, :NEIGHBOUR_LAGS], self.upstream)

    def _junction(self, at: Moment, look: Deviations) -> Array:
        return look.others(at.recent[:, :NEIGHBOUR_LAGS], self.junction)

    def _network(self, at: Moment, look: Deviations) -> Array:
        recent = look.network(at.recent)
        means = [recent[:, :n].mean(axis=1) for n in NETWORK_MEANS]
        long_ago = [look.network(slots[:, None])[:, 0] for slots in (at.yesterday, at.last_week)]
        return look.for_all(np.column_stack([recent[:, :NEIGHBOUR_LAGS], *means, *long_ago]))

    def _count_and_deviation(self, slots: Slots, at: Moment, look: Deviations) -> Array:
        deviation = look.filled(slots[:, None])[:, :, 0]
        # Where there is no such slot, the profile of the slot to be forecast stands for what was usual then.
        usual = self.usual(np.where(slots >= 0, slots, at.target))[look.links]
        return np.stack([usual + deviation, deviation], axis=2)

    def usual_at(self, slots: Slots, look: Deviations) -> Array:
        """Return the profile of a table of slots for the links asked for, (n_asked, n_rows, n)."""
        flat = self.usual(np.maximum(slots, 0).ravel())[look.links]
        return np.asarray(flat.reshape(len(look.links), *slots.shape))
