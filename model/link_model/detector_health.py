"""Detector health: which counts of a link not to believe, and why."""

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

ZERO_RUN_EXPECTED = 60.0  # vehicles a run of zeros should have seen before it is out of line
STUCK_SLOTS = 8  # this many equal counts above STUCK_LEVEL are no coincidence
STUCK_LEVEL = 10.0
OVER_CAPACITY = 1.5  # a stated capacity is a design figure, which dense traffic exceeds without a fault
FAR_OUTSIDE = 3.0  # times the 99th percentile; in real counts the maximum of a fortnight stays below 1.6 times
LEAST_OUTSIDE = 20.0  # on a quiet road a few vehicles more are chance
FORTNIGHT = 14  # local days judged together: two of every weekday, and cheap enough to read for each answer
ENOUGH_DAYS = 7.0  # days' worth of counts that a model needs
TOO_FEW = "too_few"  # the verdict on a span as a whole, not on its counts


class Verdict(NamedTuple):
    """One thing found wrong, with the slots it concerns."""

    name: str
    reason: str
    first: int
    last: int

    @property
    def slots(self) -> int:
        """How many slots it concerns."""
        return self.last - self.first + 1


class Health(NamedTuple):
    """What was found, and which counts are suspect: stored and shown, but not learnt from."""

    verdicts: list[Verdict]
    suspect: Flags
    enough: bool


def examine(series: CountSeries, capacity: float | None = None) -> Health:
    """Look for dead and stuck detectors, impossible counts and too few of them.

    Parameters
    ----------
    capacity : float, optional
        Vehicles that a slot is designed to pass.

    Notes
    -----
    - ``dead``: a run of zeros over which the profile expects at least 60 vehicles.
    - ``stuck``: the same count above 10, eight slots or more in a row.
    - ``impossible``: a negative count, one above 1.5 times the capacity, or one above 20 and three times
      the 99th percentile of the fortnight's counts other than zero.
    - ``too_few``: fewer counts left than seven days have; nothing can be learnt from the link.

    Each fortnight of local days, counted back from the last slot, is judged by itself. A series that ends at
    the same slot, or where one of these fortnights ends, has the same verdicts however far back it goes.
    """
    counts = series.counts
    suspect = np.zeros(len(counts), dtype=bool)
    verdicts = []
    for first, part in _fortnights(series):
        found = _judged(part, capacity)
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
    """Yield the fortnights of local days that end with the last slot's day, each with the place where it begins."""
    days = np.concatenate([[0], np.cumsum(series.weekday[1:] != series.weekday[:-1])])[: len(series)]
    number = (days[-1:] - days) // FORTNIGHT
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(series)]
    for first, end in pairwise(edges):
        yield first, series.between(first, end)


def _judged(series: CountSeries, capacity: float | None) -> list[Verdict]:
    found = [*_impossible(series.counts, capacity), *_stuck(series.counts)]
    suspect = np.zeros(len(series), dtype=bool)
    for verdict in found:
        suspect[verdict.first : verdict.last + 1] = True
    return found + _dead(series, suspect)


def _impossible(counts: Array, capacity: float | None) -> list[Verdict]:
    passing = counts[counts > 0]
    limit, rule = np.inf, ""
    if len(passing):
        limit = max(FAR_OUTSIDE * float(np.quantile(passing, 0.99)), LEAST_OUTSIDE)
        rule = f"{limit:g}, far outside the link's other counts"
    if capacity is not None and OVER_CAPACITY * capacity < limit:
        limit = OVER_CAPACITY * capacity
        rule = f"{limit:g}, {OVER_CAPACITY:g} times the capacity of {capacity:g}"
    found = [Verdict("impossible", f"{counts[a]:g} is negative", a, b) for a, b in _runs(counts < 0)]
    for first, last in _runs(counts > limit):
        found.append(Verdict("impossible", f"{np.max(counts[first : last + 1]):g} is above {rule}", first, last))
    return found


def _stuck(counts: Array) -> list[Verdict]:
    same = np.concatenate([[False], counts[1:] == counts[:-1]]) & (counts > STUCK_LEVEL)
    found = []
    for first, last in _runs(same):
        if last - first + 2 >= STUCK_SLOTS:
            reason = f"{counts[first]:g} stands for {last - first + 2} slots in a row"
            found.append(Verdict("stuck", reason, first - 1, last))
    return found


def _dead(series: CountSeries, suspect: Flags) -> list[Verdict]:
    sound, empty = np.where(suspect, np.nan, series.counts), _runs(series.counts == 0)
    if not empty:  # most busy roads, which need no profile
        return []
    expected = _expected_when_alive(series, sound)
    found = []
    for first, last in empty:
        missed = float(expected[first : last + 1].sum())
        if missed >= ZERO_RUN_EXPECTED:
            usual = (
                f"about {missed:.0f} vehicles are usual" if np.isfinite(missed) else "nothing else was counted for days"
            )
            reason = f"{last - first + 1} slots of zero where {usual}"
            found.append(Verdict("dead", reason, first, last))
    return found


def _expected_when_alive(series: CountSeries, sound: Array) -> Array:
    """Return the profile of each slot, learnt without long runs of zeros, which would hide themselves."""
    cleaned = sound.copy()
    for first, last in _runs(series.counts == 0):
        if last - first + 1 > series.slots_per_day // 2:
            cleaned[first : last + 1] = np.nan
    if np.isnan(cleaned).all():
        return np.full(len(sound), np.inf)  # nothing but zeros: the detector never lived
    profile = Profile.learn(cleaned, series.weekday, series.slot_of_day, series.slots_per_day)
    return profile.at(series.weekday, series.slot_of_day)


def _runs(flags: Flags) -> list[tuple[int, int]]:
    """Return first and last index of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
