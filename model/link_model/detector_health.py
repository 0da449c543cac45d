"""Detector health: the suspect counts of a link, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.link_model.profile import Profile
from model.link_model.series import CountSeries

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

ZERO_RUN_EXPECTED = 60.0  # expected vehicles from which a run of zeros is a fault
STUCK_SLOTS = 8  # this many equal counts above STUCK_LEVEL are a fault
STUCK_LEVEL = 10.0
OVER_CAPACITY = 1.5  # capacity is a design value, which dense traffic exceeds without a fault
OUTLIER_FACTOR = 3.0  # times the 99th percentile; in real counts the maximum of a fortnight stays below 1.6 times
MIN_OUTLIER = 20.0  # on a quiet road a few vehicles more are random variation
FORTNIGHT = 14  # local days examined together: two of each weekday, and cheap enough to read for each request
ENOUGH_DAYS = 7.0  # days' worth of counts that a model needs
TOO_FEW = "too_few"  # a verdict on a whole span


class Verdict(NamedTuple):
    """One fault that was found, with the slots it concerns."""

    name: str
    reason: str
    first: int
    last: int

    @property
    def slots(self) -> int:
        """Number of slots it concerns."""
        return self.last - self.first + 1


class Health(NamedTuple):
    """Verdicts, and a mask of the suspect counts, which are stored and shown but not learnt from."""

    verdicts: list[Verdict]
    suspect: Flags
    enough: bool


def examine(series: CountSeries, capacity: float | None = None) -> Health:
    """Find dead and stuck detectors, impossible counts and too few of them.

    Parameters
    ----------
    series : CountSeries
    capacity : float, optional
        Vehicles per slot that the link is designed for.

    Notes
    -----
    - ``dead``: a run of zeros over which the profile expects at least 60 vehicles.
    - ``stuck``: the same count above 10, eight slots or more in a row.
    - ``impossible``: a negative count, one above 1.5 times the capacity, or one above 20 and three times
      the 99th percentile of the fortnight's counts other than zero.
    - ``too_few``: fewer counts that are not suspect than seven days have; no model can be trained.

    Each fortnight of local days, counted back from the last slot, is examined separately. So the verdicts
    do not depend on how far back the series goes, if it ends at the same slot or where a fortnight ends.
    """
    counts = series.counts
    suspect = np.zeros(len(counts), dtype=bool)
    verdicts = []
    for first, part in _fortnights(series):
        found = _find_faults(part, capacity)
        verdicts += [verdict._replace(first=first + verdict.first, last=first + verdict.last) for verdict in found]
    for verdict in verdicts:
        suspect[verdict.first : verdict.last + 1] = True
    suspect &= ~np.isnan(counts)
    left, need = int((~np.isnan(counts) & ~suspect).sum()), int(ENOUGH_DAYS * series.slots_per_day)
    if left < need:
        reason = f"{left} counts can be learnt from; at least {need} are needed"
        verdicts.append(Verdict(TOO_FEW, reason, 0, max(len(counts) - 1, 0)))
    return Health(sorted(verdicts, key=lambda verdict: verdict.first), suspect, left >= need)


def slot_verdicts(verdicts: Sequence[Verdict], n_slots: int) -> list[str | None]:
    """Return the name of the verdict on each slot, None where nothing was found."""
    names: list[str | None] = [None] * n_slots
    for verdict in verdicts:
        if verdict.name != TOO_FEW:
            names[verdict.first : verdict.last + 1] = [verdict.name] * verdict.slots
    return names


def _fortnights(series: CountSeries) -> Iterator[tuple[int, CountSeries]]:
    """Yield the fortnights of local days that end with the last slot's day, each with the index of its first slot."""
    days = np.concatenate([[0], np.cumsum(series.weekday[1:] != series.weekday[:-1])])[: len(series)]
    number = (days[-1:] - days) // FORTNIGHT
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(series)]
    for first, end in pairwise(edges):
        yield first, series.between(first, end)


def _find_faults(series: CountSeries, capacity: float | None) -> list[Verdict]:
    found = [*_find_impossible(series.counts, capacity), *_find_stuck(series.counts)]
    suspect = np.zeros(len(series), dtype=bool)
    for verdict in found:
        suspect[verdict.first : verdict.last + 1] = True
    return found + _find_dead(series, suspect)


def _find_impossible(counts: Array, capacity: float | None) -> list[Verdict]:
    passing = counts[counts > 0]
    limit, rule = np.inf, ""
    if len(passing):
        limit = max(OUTLIER_FACTOR * float(np.quantile(passing, 0.99)), MIN_OUTLIER)
        rule = f"{limit:g}, far outside the link's other counts"
    if capacity is not None and OVER_CAPACITY * capacity < limit:
        limit = OVER_CAPACITY * capacity
        rule = f"{limit:g}, {OVER_CAPACITY:g} times the capacity of {capacity:g}"
    found = [Verdict("impossible", f"{counts[a]:g} is negative", a, b) for a, b in _runs(counts < 0)]
    for first, last in _runs(counts > limit):
        found.append(Verdict("impossible", f"{np.max(counts[first : last + 1]):g} is above {rule}", first, last))
    return found


def _find_stuck(counts: Array) -> list[Verdict]:
    same = np.concatenate([[False], counts[1:] == counts[:-1]]) & (counts > STUCK_LEVEL)
    found = []
    for first, last in _runs(same):
        if last - first + 2 >= STUCK_SLOTS:
            reason = f"{counts[first]:g} stands for {last - first + 2} slots in a row"
            found.append(Verdict("stuck", reason, first - 1, last))
    return found


def _find_dead(series: CountSeries, suspect: Flags) -> list[Verdict]:
    clean, empty = np.where(suspect, np.nan, series.counts), _runs(series.counts == 0)
    if not empty:  # true of most busy roads, where computing a profile would be wasted
        return []
    expected = _expected_when_alive(series, clean)
    found = []
    for first, last in empty:
        expected_sum = float(expected[first : last + 1].sum())
        if expected_sum >= ZERO_RUN_EXPECTED:
            usual = (
                f"about {expected_sum:.0f} vehicles are usual"
                if np.isfinite(expected_sum)
                else "nothing else was counted for days"
            )
            reason = f"{last - first + 1} slots of zero where {usual}"
            found.append(Verdict("dead", reason, first, last))
    return found


def _expected_when_alive(series: CountSeries, clean: Array) -> Array:
    """Return the expected count of each slot, by a profile learnt without long runs of zeros."""
    cleaned = clean.copy()
    for first, last in _runs(series.counts == 0):
        if last - first + 1 > series.slots_per_day // 2:
            cleaned[first : last + 1] = np.nan
    if np.isnan(cleaned).all():
        return np.full(len(clean), np.inf)  # only zeros: the detector never worked
    profile = Profile.learn(cleaned, series.weekday, series.slot_of_day, series.slots_per_day)
    return profile.at(series.weekday, series.slot_of_day)


def _runs(flags: Flags) -> list[tuple[int, int]]:
    """Return the first and last index of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
