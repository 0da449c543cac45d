"""What to say where no trained model can: the usual count of the slot, or the last count."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import reading
from app.core.errors import Conflict
from app.core.slots import Calendar, SlotGrid
from app.core.times import instant_of
from app.counts.queries import Rows, counts_by_link, newest_slots
from app.counts.series import LinkSeries, series_of, slots_between
from app.links.queries import LinkInfo, all_links
from app.registry.queries import active_models
from model.link_model.intervals import Bands
from model.link_model.profile import Profile

Array = NDArray[np.float64]

DAYS = 28  # of counts that a profile is learnt from when no model brings one
LEAST_DAYS = 2  # of counts, below which a mean of the past is worse than the last count
LEVEL = 0.9
MOST_KEPT = 5000
LINKS_AT_ONCE = 50  # links whose counts are read in one query: megabytes, and a tenth of a second
RENEWAL_STEP = 900  # seconds between the renewals of two links with consecutive keys
CALENDARS = 16  # that are kept: links of one zone whose newest slot is the same share two


class ForecastValues(NamedTuple):
    """Expected counts of the next slots, and the ends of their intervals, None where too little is known."""

    expected: Array
    lower: Array | None
    upper: Array | None

    @classmethod
    def constant(cls, count: float, n: int) -> ForecastValues:
        """Return the same count for n slots, without an interval."""
        return cls(np.full(n, count), None, None)


class LinkProfile(NamedTuple):
    """A link's profile, and how far its counts stray from it."""

    profile: Profile
    bands: Bands | None

    def at(self, link: LinkInfo, first: int, n: int) -> ForecastValues:
        """Return the profile of n slots from ``first`` on, in Unix seconds, with its interval."""
        calendar = _calendar(link.grid, link.zone, first // link.slot_seconds, n)
        return _banded(self.profile.at(calendar.weekday, calendar.slot_of_day), self.bands)


class Wanted(NamedTuple):
    """A link whose profile is asked for as of a slot, with the profile and version of its trained model, if any."""

    link: LinkInfo
    newest: int
    profile: Profile | None = None
    version: int = 0


class ProfileFallback:
    """Profiles of links, learnt from their latest weeks and kept for a day.

    To learn one takes some milliseconds. Links therefore renew theirs at different times of the day, which spreads
    the work of thousands of links over all batches of a day.
    """

    def __init__(self) -> None:
        # Each with the slot that it was learnt up to.
        self._kept: OrderedDict[tuple[LinkInfo, int, int], tuple[int, LinkProfile]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, session: Session, wanted: Wanted) -> LinkProfile | LinkSeries:
        """Return the profile of a link with its bands, or its last weeks while they have too few counts for one."""
        return self.learn(wanted, self.look_up(session, [wanted])[wanted.link.link_key])

    def look_up(self, session: Session, wanted: Sequence[Wanted]) -> dict[int, LinkProfile | Rows]:
        """Return the profiles of links that are in memory, and the counts to learn the others from, by link key."""
        found: dict[int, LinkProfile | Rows] = {}
        alike: dict[int, list[int]] = {}
        for one in wanted:
            if (known := self.in_memory(one.link, one.newest, one.version)) is not None:
                found[one.link.link_key] = known
            else:
                alike.setdefault(one.newest, []).append(one.link.link_key)
        for newest, link_keys in alike.items():
            found |= counts_by_link(session, link_keys, newest - DAYS * 86400, newest)
        return found

    def learn(self, wanted: Wanted, known: LinkProfile | Rows) -> LinkProfile | LinkSeries:
        """Return the profile of a link that was looked up, learnt and kept; its last weeks if these are too few."""
        if isinstance(known, LinkProfile):
            return known
        link, newest, profile, version = wanted
        series = series_of(link, known, slots_between(link, newest - DAYS * 86400, newest))
        usual = learn_profile(series, profile)
        if usual is None:  # not kept: the past of a link with too few counts may come in at any moment
            return series
        with self._lock:
            self._kept.setdefault(_key(link, newest, version), (newest, usual))
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return usual

    def in_memory(self, link: LinkInfo, newest: int, version: int) -> LinkProfile | None:
        """Return the profile of a link if it was learnt already, from no later counts than ``newest``."""
        with self._lock:
            kept = self._kept.get(_key(link, newest, version))
        return kept[1] if kept is not None and kept[0] <= newest else None

    def __len__(self) -> int:
        return len(self._kept)

    def learn_ahead(self, engine: Engine, over: Callable[[], bool]) -> None:
        """Learn the profiles of links without a model before they are needed, and rest for as long as each part took.

        Counts that are posted meanwhile go through their links in the order of keys. This goes the other way, so
        that the two share the work instead of doing it twice.
        """
        with reading(engine) as session:
            modelled = active_models(session)
            links = {link.link_key: link for link in all_links(session) if link.link_key not in modelled}
            newest = newest_slots(session, list(links))
        wanted = [Wanted(links[key], newest[key]) for key in sorted(newest, reverse=True)[:MOST_KEPT]]
        for begin in range(0, len(wanted), LINKS_AT_ONCE):
            if over():
                return
            began = time.monotonic()
            with reading(engine) as session:
                part = wanted[begin : begin + LINKS_AT_ONCE]
                known = self.look_up(session, part)
            for one in part:
                self.learn(one, known[one.link.link_key])
            time.sleep(time.monotonic() - began)


def _key(link: LinkInfo, newest: int, version: int) -> tuple[LinkInfo, int, int]:
    # By the whole link: after its zone changed or counts were deleted, what was learnt before is not found again.
    return link, (newest + RENEWAL_STEP * link.link_key) // 86400, version


def last_count(series: LinkSeries, newest: int, n: int) -> ForecastValues:
    """Return the last count as forecast of the next n slots, with an interval from the errors of such forecasts."""
    counts = series.counts
    known = counts[~np.isnan(counts)]
    if not len(known):  # asked as of a slot that no count came near
        raise Conflict(
            f"link {series.link_id!r} has no count in the {DAYS} days up to {instant_of(newest).isoformat()}"
        )
    expected = np.full(n, known[-1])
    came = np.full((len(counts), n), np.nan)
    for horizon in range(1, n + 1):
        came[: len(counts) - horizon, horizon - 1] = counts[horizon:]
    return _banded(expected, _bands(np.repeat(counts[:, None], n, axis=1), came))


def learn_profile(series: LinkSeries, profile: Profile | None) -> LinkProfile | None:
    """Return a link's profile with its bands; None where it has too few counts and no profile of a model."""
    sound = np.where(series.suspect, np.nan, series.counts)
    enough = np.count_nonzero(~np.isnan(sound)) >= LEAST_DAYS * series.grid.slots_per_day
    if not enough:
        return None if profile is None else LinkProfile(profile, None)
    calendar = _calendar(series.grid, series.zone, series.first, len(series))
    if profile is None:
        profile = Profile.learn(sound, calendar.weekday, calendar.slot_of_day, series.grid.slots_per_day)
    return LinkProfile(profile, _bands(profile.at(calendar.weekday, calendar.slot_of_day)[:, None], sound[:, None]))


@lru_cache(maxsize=CALENDARS)
def _calendar(grid: SlotGrid, zone: ZoneInfo, first: int, n: int) -> Calendar:
    return grid.calendar(first, n, zone)


def _bands(expected: Array, came: Array) -> Bands | None:
    try:
        return Bands.learn(expected, came, LEVEL)
    except ValueError:  # too few errors to say how large they are
        return None


def _banded(expected: Array, bands: Bands | None) -> ForecastValues:
    if bands is None:
        return ForecastValues(expected, None, None)
    if len(bands.edges) == 1:  # one band for all horizons
        lower, upper = bands.around(expected[:, None])
        return ForecastValues(expected, lower[:, 0], upper[:, 0])
    lower, upper = bands.around(expected[None, :])
    return ForecastValues(expected, lower[0], upper[0])
