"""Public holidays of a country or a part of one, which is named or follows from a time zone."""

from __future__ import annotations

from collections.abc import Container
from datetime import date
from functools import lru_cache
from importlib.resources import files

AUTO, OFF = "auto", "off"


def holiday_region(zone_name: str, setting: str = AUTO) -> str:
    """Return the region whose public holidays count: the one set, or the zone's country; empty where it is unknown.

    Raises
    ------
    ValueError
        The setting names neither a country nor a part of one that is known.
    """
    if setting == OFF:
        return ""
    region = _countries().get(zone_name, "") if setting == AUTO else setting.upper()
    try:
        public_holidays(region)
    except (NotImplementedError, KeyError):
        if setting == AUTO:
            return ""
        raise ValueError(
            f"holidays={setting!r} is refused; it must be auto, off, a country such as AU, or a part such as AU-VIC"
        ) from None
    return region


@lru_cache
def public_holidays(region: str) -> Container[date]:
    """Return the public holidays of a region, such as AU or AU-VIC."""
    from holidays import country_holidays  # takes 50 ms, and only networks need it

    country, _, part = region.partition("-")
    return country_holidays(country, subdiv=part or None)


@lru_cache
def _countries() -> dict[str, str]:
    """Return the two letters of the country of each time zone that lies in one."""
    lines = (files("tzdata") / "zoneinfo" / "zone.tab").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {row[2]: row[0] for row in rows}
