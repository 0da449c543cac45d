"""The calendar of a network: local days, and public holidays by the country of its time zone."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np

from app.core.slots import SlotGrid
from model.network_model.series import HOLIDAY, NetworkCalendar

if TYPE_CHECKING:
    from holidays import HolidayBase

AUTO, OFF = "auto", "off"


def network_calendar(grid: SlotGrid, zone: ZoneInfo, first: int, n: int, holidays: str) -> NetworkCalendar:
    """Return the calendar of n slots from number ``first`` on; a public holiday counts as a Sunday.

    ``holidays`` is what `holidays_of` returned: a country, a country and its part, or nothing.
    """
    calendar = grid.calendar(first, n, zone)
    weekday = calendar.weekday.copy()
    if holidays:
        days = np.unique(calendar.day)
        free = days[[date.fromordinal(int(day) + date(1970, 1, 1).toordinal()) in _holidays(holidays) for day in days]]
        weekday[np.isin(calendar.day, free)] = HOLIDAY
    return NetworkCalendar(weekday, calendar.slot_of_day, calendar.day, grid.slots_per_day)


def holidays_of(zone_name: str, setting: str = AUTO) -> str:
    """Return the country whose public holidays count: the one set, or the zone's; none where that is unknown.

    Raises
    ------
    ValueError
        The setting names neither a country nor a part of one that is known.
    """
    if setting == OFF:
        return ""
    code = _countries().get(zone_name, "") if setting == AUTO else setting.upper()
    try:
        _holidays(code)
    except (NotImplementedError, KeyError):
        if setting == AUTO:
            return ""
        raise ValueError(
            f"holidays={setting!r} is refused; it must be auto, off, a country such as AU, or a part such as AU-VIC"
        ) from None
    return code


@lru_cache
def _countries() -> dict[str, str]:
    """Return the two letters of the country of each time zone that lies in one."""
    lines = (files("tzdata") / "zoneinfo" / "zone.tab").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {row[2]: row[0] for row in rows}


@lru_cache
def _holidays(code: str) -> HolidayBase:
    from holidays import country_holidays  # takes 50 ms, and only networks need it

    country, _, part = code.partition("-")
    return country_holidays(country, subdiv=part or None)
