"""Detector health: which counts of a link not to believe, and why."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.profile import Profile
from model.series import CountSeries

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

ZERO_RUN_EXPECTED = 60.0  # vehicles a run of zeros should have seen before it is out of line
STUCK_SLOTS = 8  # this many equal counts above STUCK_LEVEL are no coincidence
STUCK_LEVEL = 10.0
FAR_OUTSIDE = 3.0  # times the 99.5th percentile of the link's history
ENOUGH_DAYS = 7.0  # days' worth of counts that a model needs


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
        Vehicles a slot can pass; without it, counts far outside the link's history are impossible.

    Notes
    -----
    - ``dead``: a run of zeros over which the profile expects at least 60 vehicles.
    - ``stuck``: the same count above 10, eight slots or more in a row.
    - ``impossible``: a negative count, or one above the capacity, or without a capacity above
      three times the 99.5th percentile of the link's counts.
    - ``too_few``: fewer counts left than seven days have; nothing can be learnt from the link.
    """
    counts = series.counts
    suspect = np.zeros(len(counts), dtype=bool)
    verdicts = []
    for verdict in [*_impossible(counts, capacity), *_stuck(counts)]:
        suspect[verdict.first : verdict.last + 1] = True
        verdicts.append(verdict)
    for verdict in _dead(series, suspect):
        suspect[verdict.first : verdict.last + 1] = True
        verdicts.append(verdict)
    suspect &= ~np.isnan(counts)
    left, need = int((~np.isnan(counts) & ~suspect).sum()), int(ENOUGH_DAYS * series.slots_per_day)
    if left < need:
        reason = f"{left} counts can be learnt from; at least {need} are needed"
        verdicts.append(Verdict("too_few", reason, 0, max(len(counts) - 1, 0)))
    return Health(sorted(verdicts, key=lambda verdict: verdict.first), suspect, left >= need)


def _impossible(counts: Array, capacity: float | None) -> list[Verdict]:
    known = counts[~np.isnan(counts)]
    if capacity is not None:
        limit, rule = capacity, f"the capacity of {capacity:g}"
    elif len(known) and np.quantile(known, 0.995) > 0.0:
        limit = FAR_OUTSIDE * float(np.quantile(known, 0.995))
        rule = f"{limit:g}, three times the link's 99.5th percentile"
    else:
        limit, rule = np.inf, ""
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
    sound = np.where(suspect, np.nan, series.counts)
    if np.isnan(sound).all():
        return []
    expected = _expected_when_alive(series, sound)
    found = []
    for first, last in _runs(series.counts == 0):
        missed = float(expected[first : last + 1].sum())
        if missed >= ZERO_RUN_EXPECTED:
            usual = f"about {missed:.0f} vehicles are usual" if np.isfinite(missed) else "no vehicle was ever counted"
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
