"""Demand of the sample city: vehicles that want to pass each link, slot by slot."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.slots import SlotGrid, zone_named
from app.demo.streets import StreetNetwork

FloatArray = NDArray[np.float64]

FRIDAY, SATURDAY = 4, 5
# Spreads, in logarithms, set so that counts scatter about their weekly mean as 15-minute counts of
# real signalled approaches do (docs/sample-city.md, "How it was tuned").
CITY_DAY_SPREAD, LINK_DAY_SPREAD = 0.025, 0.018
CITY_HOURS_SPREAD, LINK_HOURS_SPREAD = 0.015, 0.03
HOURS_MEMORY_MINUTES = 120.0


class CityCalendar(NamedTuple):
    """Consecutive slots by local time."""

    grid: SlotGrid
    first_slot: int
    day: NDArray[np.int64]  # number of the local day, from 0
    weekday: NDArray[np.int64]
    slot_of_day: NDArray[np.int64]

    @property
    def hour(self) -> FloatArray:
        """Return the local time of day at which each slot starts, in hours."""
        hours: FloatArray = self.slot_of_day * self.grid.slot_minutes / 60
        return hours


def city_calendar(grid: SlotGrid, start: date, days: int, zone: str) -> CityCalendar:
    """Return the local days, weekdays and times of day of the slots of ``days`` local days."""
    zone_info = zone_named(zone)
    spans = [grid.local_day(start + timedelta(days=d), zone_info) for d in range(days)]
    first, n = spans[0].start, spans[-1].stop - spans[0].start
    calendar = grid.calendar(first, n, zone_info)
    day = np.repeat(np.arange(days), [len(span) for span in spans])
    return CityCalendar(grid, first, day, calendar.weekday, calendar.slot_of_day)


def usual_demand(
    network: StreetNetwork, peaks: FloatArray, calendar: CityCalendar, rng: np.random.Generator
) -> FloatArray:
    """Return the vehicles per slot of an ordinary week, (n_slots, n_links), given each link's usual strongest slot."""
    inbound = np.array([street.inbound for street in network.streets])
    # One row per link, so that a larger city leaves its first links' habits alone.
    habits = rng.uniform(-1, 1, (len(inbound), 3))
    per_day = calendar.grid.slots_per_day
    hours = (np.arange(per_day)[:, None] + 0.5) * calendar.grid.slot_minutes / 60 - 0.25 * habits[:, 0]
    level = 1 + 0.12 * habits[:, 1]
    week = np.stack([_day_shape(weekday, hours, inbound, level, 1 + 0.25 * habits[:, 2]) for weekday in range(7)])
    return week[calendar.weekday, calendar.slot_of_day] * peaks


def demand_factors(calendar: CityCalendar, links: int, rng: np.random.Generator) -> FloatArray:
    """Draw factors on the usual demand, (n_slots, n_links), by day and hour, for the city and for each link."""
    days = int(calendar.day[-1]) + 1
    city_days = CITY_DAY_SPREAD * _wandering(rng.standard_normal((days, 1)), 0.3)
    link_days = LINK_DAY_SPREAD * rng.standard_normal((days, links))
    memory = float(np.exp(-calendar.grid.slot_minutes / HOURS_MEMORY_MINUTES))
    n = len(calendar.day)
    city_hours = CITY_HOURS_SPREAD * _wandering(rng.standard_normal((n, 1)), memory)
    link_hours = LINK_HOURS_SPREAD * _wandering(rng.standard_normal((n, links)), memory)
    factors: FloatArray = np.exp((city_days + link_days)[calendar.day] + city_hours + link_hours)
    return factors


def _day_shape(
    weekday: int, hours: FloatArray, inbound: FloatArray, level: FloatArray, weekend: FloatArray
) -> FloatArray:
    """Return shares of the usual strongest slot, (slots_per_day, n_links)."""
    if weekday >= SATURDAY:
        return _weekend_shape(weekday, hours, inbound, weekend)
    friday = weekday == FRIDAY
    working = _rise(hours, 6.3, 0.35) * _rise(-hours, -18.7 - 0.4 * friday, 0.55)
    awake = _rise(hours, 5.6, 0.4) * _rise(-hours, -22.6 - 0.5 * friday, 0.6)
    # Commuters come in and go home by the same road: the tide. Fridays end earlier, longer and fuller.
    morning = (0.33 + 0.25 * inbound) * _bump(hours, 8.0, 0.75) * (0.93 if friday else 1)
    evening = (0.34 - 0.20 * inbound) * _bump(hours, 16.9 if friday else 17.2, 1.3 if friday else 1.15)
    return 0.025 + 0.22 * awake + 0.26 * level * working + morning + evening * (1.15 if friday else 1)


def _weekend_shape(weekday: int, hours: FloatArray, inbound: FloatArray, weekend: FloatArray) -> FloatArray:
    if weekday == SATURDAY:
        awake = 0.24 * _rise(hours, 8.0, 0.7) * _rise(-hours, -23.2, 0.9)
        out_of_doors = 0.36 * _rise(hours, 9.2, 0.8) * _rise(-hours, -18.0, 1.0)
        return 0.03 + 0.10 * _night_out(hours) + weekend * (awake + out_of_doors)
    awake = 0.19 * _rise(hours, 9.2, 0.7) * _rise(-hours, -21.5, 0.9)
    out_of_doors = 0.25 * _rise(hours, 10.4, 0.8) * _rise(-hours, -18.0, 1.0)
    homewards = 0.07 * (1 + inbound) * _bump(hours, 17.5, 1.5)
    return 0.03 + 0.13 * _night_out(hours) + weekend * (awake + out_of_doors) + homewards


def _night_out(hours: FloatArray) -> FloatArray:
    """Return the share of those who come home late, from midnight on."""
    late: FloatArray = np.exp(-np.maximum(hours, 0) / 1.8)
    return late


def _rise(x: FloatArray, at: float, width: float) -> FloatArray:
    rise: FloatArray = 0.5 * (1 + np.tanh((x - at) / (2 * width)))
    return rise


def _bump(x: FloatArray, at: float, width: float) -> FloatArray:
    bump: FloatArray = np.exp(-0.5 * ((x - at) / width) ** 2)
    return bump


def _wandering(shocks: FloatArray, memory: float) -> FloatArray:
    """Return a first-order autoregression along the rows, with the spread of one shock throughout."""
    fresh = float(np.sqrt(1 - memory**2))
    path = shocks.copy()
    for t in range(1, len(path)):
        path[t] = memory * path[t - 1] + fresh * shocks[t]
    return path
