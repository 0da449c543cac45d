"""What to say where no trained model can: the usual count of the slot, or the last count."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.counts.series import LinkSeries
from app.counts.stored_series import stored_series
from app.exceptions import NotYet
from app.links.queries import LinkInfo
from app.web.instants import instant_of
from model.bands import Bands
from model.profile import Profile

Array = NDArray[np.float64]

DAYS = 28  # of counts that a profile is learnt from when no model brings one
LEAST_DAYS = 2  # of counts, below which a mean of the past says less than the last count
LEVEL = 0.9
MOST_KEPT = 5000


class Said(NamedTuple):
    """Expected counts of the next slots, and the ends of their intervals, None where too little is known."""

    expected: Array
    lower: Array | None
    upper: Array | None


class Usual(NamedTuple):
    """A link's profile, and how far its counts stray from it."""

    profile: Profile
    bands: Bands | None

    def at(self, link: LinkInfo, first: int, n: int) -> Said:
        """Say what is usual in n slots from ``first`` on, in Unix seconds."""
        calendar = link.grid.calendar(first // link.slot_seconds, n, link.zone)
        return _banded(self.profile.at(calendar.weekday, calendar.slot_of_day), self.bands)


class UsualCounts:
    """Profiles of links, learnt from their latest weeks and kept for a day of their own time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, int], tuple[int, Usual]] = OrderedDict()  # with the slot it ends at
        self._lock = threading.Lock()

    def of(self, session: Session, link: LinkInfo, newest: int, profile: Profile | None, version: int) -> Usual | None:
        """Give the profile of a link with its bands; None while there are too few counts for one.

        ``profile`` is that of the link's trained model, if there is one, and ``version`` its version.
        """
        key = (link.link_key, newest // 86400, version)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept[0] <= newest:  # else it knows more than was known at that slot
            return kept[1]
        usual = _learn(stored_series(session, link, newest - DAYS * 86400, newest), profile)
        if usual is not None:  # of a link with too few counts, the past may come in at any moment
            with self._lock:
                self._kept.setdefault(key, (newest, usual))
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
        return usual


def last_count(session: Session, link: LinkInfo, newest: int, n: int) -> Said:
    """Say that the next n slots will be like the last, within what such a guess missed by before."""
    series = stored_series(session, link, newest - DAYS * 86400, newest)
    counts = series.counts
    known = counts[~np.isnan(counts)]
    if not len(known):  # asked as of a slot that no count came near
        raise NotYet(f"link {link.link_id!r} has no count in the {DAYS} days up to {instant_of(newest).isoformat()}")
    expected = np.full(n, known[-1])
    came = np.full((len(counts), n), np.nan)
    for horizon in range(1, n + 1):
        came[: len(counts) - horizon, horizon - 1] = counts[horizon:]
    return _banded(expected, _bands(np.repeat(counts[:, None], n, axis=1), came))


def _learn(series: LinkSeries, profile: Profile | None) -> Usual | None:
    sound = np.where(series.suspect, np.nan, series.counts)
    enough = np.count_nonzero(~np.isnan(sound)) >= LEAST_DAYS * series.grid.slots_per_day
    if not enough:
        return None if profile is None else Usual(profile, None)
    calendar = series.calendar()
    if profile is None:
        profile = Profile.learn(sound, calendar.weekday, calendar.slot_of_day, series.grid.slots_per_day)
    return Usual(profile, _bands(profile.at(calendar.weekday, calendar.slot_of_day)[:, None], sound[:, None]))


def _bands(expected: Array, came: Array) -> Bands | None:
    try:
        return Bands.learn(expected, came, LEVEL)
    except ValueError:  # too few errors to say how large they are
        return None


def _banded(expected: Array, bands: Bands | None) -> Said:
    if bands is None:
        return Said(expected, None, None)
    if len(bands.edges) == 1:  # one band for all horizons
        lower, upper = bands.around(expected[:, None])
        return Said(expected, lower[:, 0], upper[:, 0])
    lower, upper = bands.around(expected[None, :])
    return Said(expected, lower[0], upper[0])
