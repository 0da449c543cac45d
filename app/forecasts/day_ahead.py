"""Forecasts up to a day ahead, computed from issued forecasts when they are requested, and never stored.

Only the nearest slots are issued and stored. Beyond them their mean deviation from the link's profile fades;
a link without a profile repeats the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.core.database import UNREACHABLE, reading
from app.core.errors import Problem, ProblemType, Unavailable
from app.forecasts.cache import CacheEntry, ForecastCache
from app.forecasts.compute import profile_version
from app.forecasts.issued_forecast import DECIMALS, HORIZONS, PROFILE, Array, IssuedForecast
from app.forecasts.levels import offset_ratio
from app.forecasts.profile_fallback import LINKS_AT_ONCE, LinkProfile
from app.links.queries import LinkInfo
from model.aggregation.experts import faded


def longest_horizon(link: LinkInfo) -> int:
    """Return how many slots ahead a link can be forecast: those of a day, and no fewer than are issued."""
    return max(HORIZONS, link.grid.slots_per_day)


def extended(issued: IssuedForecast, profile: LinkProfile | None, n: int) -> IssuedForecast:
    """Return an issued forecast continued to n slots, or to a day if that is less."""
    n, near = min(n, longest_horizon(issued.link)), len(issued.expected)
    if profile is None:
        repeated = max(0, n - near)
        return issued._replace(
            expected=issued.expected + issued.expected[-1:] * repeated,
            lower=issued.lower + issued.lower[-1:] * repeated,
            upper=issued.upper + issued.upper[-1:] * repeated,
            profile=issued.profile + [None] * repeated,
        )
    usual = profile.at(issued.link, issued.slots()[0], n)
    far = faded(issued.expected, usual, n, issued.link.slot_minutes)[near:]
    lower, upper = _intervals_beyond(issued, profile, far)
    return issued._replace(
        expected=issued.expected + _rounded(far),
        lower=issued.lower + lower,
        upper=issued.upper + upper,
        profile=[*issued.profile, *_rounded(usual[near:])],
    )


def _intervals_beyond(
    issued: IssuedForecast, profile: LinkProfile, far: Array
) -> tuple[list[float | None], list[float | None]]:
    """Return the ends of the intervals around the expected counts beyond the issued ones.

    They reach as far as that of the last issued one, and at least as far as the profile's own at this expected count.
    Where the profile made the forecast, its own are used alone, as for the issued ones.
    """
    last, low, high = issued.expected[-1], issued.lower[-1], issued.upper[-1]
    if low is None or high is None:
        return [None] * len(far), [None] * len(far)
    below, above = np.full(len(far), last - low), np.full(len(far), high - last)
    if profile.bands is not None:
        own_lower, own_upper = profile.bands.around(far[:, None])  # one band for all slots
        ratio = offset_ratio(issued.level, profile.bands.level)
        own_below, own_above = ratio * (far - own_lower[:, 0]), ratio * (own_upper[:, 0] - far)
        if issued.method == PROFILE:
            below, above = own_below, own_above
        else:
            below, above = np.maximum(below, own_below), np.maximum(above, own_above)
    return [*_rounded(np.maximum(far - below, 0.0))], [*_rounded(far + above)]


def _rounded(values: Array) -> list[float]:
    return [round(value, DECIMALS) for value in values.tolist()]


class Profiles(NamedTuple):
    """Profiles of links by link key; None for a link with too few counts, absent where there should be one."""

    by_key: dict[int, LinkProfile | None]
    unreachable: bool = False  # whether the database was, so that only those in memory are known

    def of(self, link: LinkInfo) -> LinkProfile | None:
        """Return the profile of a link; raise the problem why it is absent."""
        if link.link_key in self.by_key:
            return self.by_key[link.link_key]
        if self.unreachable:
            raise Unavailable(
                f"there is no forecast of link {link.link_id!r} beyond horizon={HORIZONS}: the database is unreachable "
                "and its profile is not in memory"
            )
        raise Problem(
            f"the profile of link {link.link_id!r} failed; the service's log has the reason",
            problem_type=ProblemType.FORECAST_FAILED,
        )


def read_profiles(
    cache: ForecastCache, forecasts: Sequence[tuple[CacheEntry, IssuedForecast]], *, stale: bool = False
) -> Profiles:
    """Return the profiles of links with forecasts; one that is not in memory is learnt unless that is impossible.

    With ``stale`` the database is known to be unreachable.
    """
    forecaster = cache.forecaster
    found: dict[int, LinkProfile | None] = {}
    missing = []
    for entry, forecast in forecasts:
        link = forecast.link
        if forecast.first_slot is not None and entry.fallback is not None:  # which made the forecast
            found[link.link_key] = entry.fallback.profile
        elif known := forecaster.profiles.in_memory(link, forecast.as_of, profile_version(forecast)):
            found[link.link_key] = known
        else:
            missing.append(forecast)
    if not missing:
        return Profiles(found)
    if not stale:
        try:
            return Profiles(found | _learn_profiles(cache, missing))
        except UNREACHABLE:
            pass
    for forecast in missing:
        if (fallback := forecaster.late_fallback_in_memory(forecast)) is not None:
            found[forecast.link.link_key] = fallback.profile
    return Profiles(found, unreachable=True)


def _learn_profiles(cache: ForecastCache, forecasts: Sequence[IssuedForecast]) -> dict[int, LinkProfile | None]:
    forecaster = cache.forecaster
    found: dict[int, LinkProfile | None] = {}
    for begin in range(0, len(forecasts), LINKS_AT_ONCE):
        with reading(cache.engine) as session:
            requests = forecaster.profile_requests(session, forecasts[begin : begin + LINKS_AT_ONCE])
            found |= forecaster.profiles.profiles(session, requests)
    return found
