"""Forecasts of links that no trained model can forecast: their profiles, or their last counts."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import reading
from app.core.errors import Conflict, ProblemType
from app.core.holidays import AUTO, holiday_region
from app.core.slots import Calendar, SlotGrid
from app.core.times import SECONDS_A_DAY, instant_of, rfc_3339
from app.counts.queries import CountRows, counts_by_link, newest_slots
from app.counts.series import LinkSeries, network_calendar, series_of, slots_between
from app.forecasts.issued_forecast import (
    HORIZONS,
    LAST_COUNT,
    NO_PROFILE,
    PROFILE,
    Array,
    Degradation,
    ForecastRequest,
    IssuedForecast,
    ModelForecast,
    Reason,
    issue,
)
from app.links.queries import LinkInfo, all_links
from app.registry.queries import active_models
from model.artifacts.link_models import LinkModel
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.network_model.network import NetworkModel

DAYS = 28  # of counts that a profile is learnt from when no model brings one
LEAST_DAYS = 2  # of counts, below which a mean of the past is worse than the last count
LEVEL = 0.9
MOST_KEPT = 5000
LINKS_AT_ONCE = 50  # links whose counts are read in one query: megabytes, and a tenth of a second
RENEWAL_STEP = 900  # seconds between the renewals of two links with consecutive keys
CALENDARS = 64  # that are kept: links of one zone whose newest slot is the same share two, and one a day ahead

log = logging.getLogger("flowcast.forecasts")


class LinkProfile(NamedTuple):
    """A link's profile, and the bands that its counts keep around it."""

    profile: Profile
    bands: Bands | None
    holidays: str = ""  # the region whose public holidays count as Sundays

    def at(self, link: LinkInfo, first: int, n: int) -> Array:
        """Return the expected counts of n slots from ``first`` on, in Unix seconds."""
        calendar = _calendar(link.grid, link.zone, first // link.slot_seconds, n, self.holidays)
        return self.profile.at(calendar.weekday, calendar.slot_of_day)

    def forecast(self, link: LinkInfo, first: int, version: int, reason: Reason | None) -> ModelForecast:
        """Return the profile of the slots from ``first`` on, in Unix seconds, with its interval."""
        expected = self.at(link, first, HORIZONS)
        lower, upper = _interval(self.bands, expected[:, None])  # one band for all slots
        return ModelForecast(PROFILE, version, LEVEL, expected, lower, upper, expected, reason=reason)


class ProfileFallback:
    """Profiles of links, learnt from their latest weeks and kept for a day.

    Learning one takes some milliseconds. Links therefore renew theirs at different times of the day, which spreads
    the work of thousands of links over all batches of a day.
    """

    def __init__(self, holidays: str = AUTO) -> None:
        self._holidays = holidays  # as the setting has it; used for links that an ensemble forecasts
        # Each with the slot that it was learnt up to.
        self._kept: OrderedDict[tuple[LinkInfo, int, int], tuple[int, LinkProfile]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def compute(self, session: Session, requests: Sequence[ForecastRequest]) -> dict[int, ModelForecast]:
        """Return the forecasts of links by their profiles or else their last counts, by link key."""
        found = {}
        for begin in range(0, len(requests), LINKS_AT_ONCE):
            part = requests[begin : begin + LINKS_AT_ONCE]
            known = self.look_up(session, part)
            for request in part:
                try:
                    found[request.link.link_key] = self._forecast(request, known[request.link.link_key])
                except Conflict:
                    raise
                except Exception:  # one bad link must not spoil the response for the others
                    log.exception("a link's forecast failed", extra={"link": request.link.link_id})
        return found

    def of(self, session: Session, request: ForecastRequest) -> LinkProfile | LinkSeries:
        """Return the profile of a link with its bands, or its last weeks while they have too few counts for one."""
        return self.learn(request, self.look_up(session, [request])[request.link.link_key])

    def look_up(self, session: Session, requests: Sequence[ForecastRequest]) -> dict[int, LinkProfile | CountRows]:
        """Return the profiles of links that are in memory, and the counts to learn the others from, by link key."""
        found: dict[int, LinkProfile | CountRows] = {}
        alike: dict[int, list[int]] = {}
        for request in requests:
            if (known := self.in_memory(request.link, request.as_of, request.version)) is not None:
                found[request.link.link_key] = known
            else:
                alike.setdefault(request.as_of, []).append(request.link.link_key)
        for as_of, link_keys in alike.items():
            found |= counts_by_link(session, link_keys, as_of - (DAYS + 1) * SECONDS_A_DAY, as_of)
        return found

    def profiles(self, session: Session, requests: Sequence[ForecastRequest]) -> dict[int, LinkProfile | None]:
        """Return the profiles of links, None for a link with too few counts; a link whose profile fails is left out."""
        found: dict[int, LinkProfile | None] = {}
        for begin in range(0, len(requests), LINKS_AT_ONCE):
            part = requests[begin : begin + LINKS_AT_ONCE]
            known = self.look_up(session, part)
            for request in part:
                try:
                    profile = self.learn(request, known[request.link.link_key])
                except Exception:  # one bad link must not spoil the response for the others
                    log.exception("a link's profile failed", extra={"link": request.link.link_id})
                else:
                    found[request.link.link_key] = profile if isinstance(profile, LinkProfile) else None
        return found

    def learn(self, request: ForecastRequest, known: LinkProfile | CountRows) -> LinkProfile | LinkSeries:
        """Return the profile of a link that was looked up; learn and keep it if it was not in memory.

        It is learnt from the weeks before its last renewal, whenever that is done, so that all processes have the
        same. Where these have too few counts, the latest weeks are used. Return these if they have too few as well.
        """
        if isinstance(known, LinkProfile):
            return known
        link, as_of = request.link, request.as_of
        series = _weeks_before(link, known, renewed_at(link, as_of))
        if not _is_enough(series):
            series = _weeks_before(link, known, as_of + link.slot_seconds)
        region = holiday_region(link.zone_name, self._holidays) if link.has_ensemble else ""
        profile = learn_profile(series, model_profile(request.loaded.model) if request.loaded else None, region)
        if profile is None:  # not kept: the past of a link with too few counts may come in at any moment
            return series
        with self._lock:
            self._kept.setdefault(_kept_as(link, as_of, request.version), (as_of, profile))
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return profile

    def in_memory(self, link: LinkInfo, as_of: int, version: int) -> LinkProfile | None:
        """Return the profile of a link if it was learnt already, from no later counts than ``as_of``."""
        with self._lock:
            kept = self._kept.get(_kept_as(link, as_of, version))
        return kept[1] if kept is not None and kept[0] <= as_of else None

    def learn_ahead(self, engine: Engine, over: Callable[[], bool]) -> None:
        """Learn the profiles that issuing will need before it does, and pause for as long as each part took.

        Counts that are posted meanwhile are processed in the order of link keys. This goes in the opposite order, so
        that no profile is learnt twice.
        """
        with reading(engine) as session:
            modelled = active_models(session)
            every = all_links(session)
            links = {link.link_key: link for link in every if link.has_ensemble or link.link_key not in modelled}
            newest = newest_slots(session, list(links))
        requests = [ForecastRequest(links[key], newest[key]) for key in sorted(newest, reverse=True)[:MOST_KEPT]]
        for begin in range(0, len(requests), LINKS_AT_ONCE):
            if over():
                return
            began = time.monotonic()
            part = requests[begin : begin + LINKS_AT_ONCE]
            with reading(engine) as session:
                known = self.look_up(session, part)
            for request in part:
                self.learn(request, known[request.link.link_key])
            time.sleep(time.monotonic() - began)

    def _forecast(self, request: ForecastRequest, known: LinkProfile | CountRows) -> ModelForecast:
        profile = self.learn(request, known)
        if isinstance(profile, LinkSeries):
            return last_count(profile, request.as_of, request.reason or NO_PROFILE)
        first = request.as_of + request.link.slot_seconds
        return profile.forecast(request.link, first, request.version, request.reason)


class LateFallback(NamedTuple):
    """The fallback of a link that has had no count for too long: its profile, or else its last count."""

    version: int  # of the trained model that the profile belongs to; 0 for none
    profile: LinkProfile | None
    last_count: float = 0.0

    def forecast(self, issued: IssuedForecast, now: int, minutes: int) -> IssuedForecast:
        """Return the forecast that replaces an issued one, from the slot that contains now on; it is never stored."""
        link = issued.link
        first = now - now % link.slot_seconds
        reason = Reason(Degradation.STALE, f"no count has come for more than {minutes} minutes")
        if self.profile is None:
            # Without an interval, because errors of the last count are known for the next few slots only.
            expected = np.full(HORIZONS, self.last_count)
            forecast = ModelForecast(LAST_COUNT, 0, LEVEL, expected, None, None, None, reason=reason)
        else:
            forecast = self.profile.forecast(link, first, self.version, reason)
        return issue(link, issued.as_of, forecast, time.time_ns() // 1000)._replace(first_slot=first)


def last_count(series: LinkSeries, as_of: int, reason: Reason | None = None) -> ModelForecast:
    """Return the last count as forecast of the next slots, with an interval from the errors of such forecasts."""
    counts = series.counts
    known = counts[~np.isnan(counts)]
    if not len(known):  # as of a slot that no count came near
        raise Conflict(
            ProblemType.TOO_LITTLE_HISTORY,
            f"link {series.link_id!r} has no count in the {DAYS} days up to {rfc_3339(instant_of(as_of))}",
        )
    expected = np.full(HORIZONS, known[-1])
    came = np.full((len(counts), HORIZONS), np.nan)
    for horizon in range(1, HORIZONS + 1):
        came[: len(counts) - horizon, horizon - 1] = counts[horizon:]
    bands = _learn_bands(np.repeat(counts[:, None], HORIZONS, axis=1), came)
    lower, upper = _interval(bands, expected[None, :])  # a band for each horizon
    return ModelForecast(LAST_COUNT, 0, LEVEL, expected, lower, upper, None, reason=reason)


def model_profile(model: LinkModel) -> LinkProfile:
    """Return the profile that a model brings, without bands."""
    holidays = model.network.holidays if isinstance(model, NetworkModel) else ""
    return LinkProfile(model.profile, None, holidays)


def learn_profile(series: LinkSeries, own: LinkProfile | None, holidays: str = "") -> LinkProfile | None:
    """Return a link's profile with its bands; None where it has too few counts and no profile of a model.

    Public holidays are those of the model's network, or else of a region.
    """
    if not _is_enough(series):
        return own
    sound = np.where(series.suspect, np.nan, series.counts)
    region = holidays if own is None else own.holidays
    calendar = _calendar(series.grid, series.zone, series.first, len(series), region)
    if own is None:
        learnt = Profile.learn(sound, calendar.weekday, calendar.slot_of_day, series.grid.slots_per_day)
        own = LinkProfile(learnt, None, region)
    expected = own.profile.at(calendar.weekday, calendar.slot_of_day)
    return own._replace(bands=_learn_bands(expected[:, None], sound[:, None]))


def _is_enough(series: LinkSeries) -> bool:
    known = np.count_nonzero(~np.isnan(series.counts) & ~series.suspect)
    return bool(known >= LEAST_DAYS * series.grid.slots_per_day)


def _weeks_before(link: LinkInfo, rows: CountRows, end: int) -> LinkSeries:
    """Return the last weeks before a Unix second."""
    first = end - DAYS * SECONDS_A_DAY
    within = (rows[:, 1] >= first) & (rows[:, 1] < end)
    return series_of(link, rows[within], slots_between(link, first, end - 1))


def link_calendar(link: LinkInfo, first: int, n: int) -> Calendar:
    """Return the calendar of n slots from the one that starts at ``first``, in Unix seconds, by the link's clock."""
    return _calendar(link.grid, link.zone, first // link.slot_seconds, n)


@lru_cache(maxsize=CALENDARS)
def _calendar(grid: SlotGrid, zone: ZoneInfo, first: int, n: int, holidays: str = "") -> Calendar:
    if not holidays:
        return grid.calendar(first, n, zone)
    calendar = network_calendar(grid, zone, first, n, holidays)
    return Calendar(calendar.weekday, calendar.slot_of_day, calendar.day)


def _learn_bands(expected: Array, came: Array) -> Bands | None:
    try:
        return Bands.learn(expected, came, LEVEL)
    except ValueError:  # too few errors to know how large they are
        return None


def _interval(bands: Bands | None, expected: Array) -> tuple[Array | None, Array | None]:
    """Return the ends of the intervals around expected counts, (n, 1) or (1, n), as ``Bands.around`` takes them."""
    if bands is None:
        return None, None
    lower, upper = bands.around(expected)
    return lower.ravel(), upper.ravel()


def renewed_at(link: LinkInfo, as_of: int) -> int:
    """Return when the profile of a link that is used as of a slot was last renewed, in Unix seconds."""
    shift = RENEWAL_STEP * link.link_key
    return (as_of + shift) // SECONDS_A_DAY * SECONDS_A_DAY - shift


def _kept_as(link: LinkInfo, as_of: int, version: int) -> tuple[LinkInfo, int, int]:
    # The whole link is part of the key, because a change of its zone or deleted counts make earlier profiles invalid.
    return link, renewed_at(link, as_of), version
