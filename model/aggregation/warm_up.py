"""Warm up the aggregation of a link's experts on slots whose counts are known, before it forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model.aggregation.experts import RECENT, ExpertInputs, forecast_experts
from model.aggregation.intervals import issued_bands
from model.aggregation.state import N_HORIZONS, Aggregation, Replay, replay
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.link_model.series import CountSeries

Array = NDArray[np.float64]

PROFILE_DAYS = 28  # of counts before a day, from which its profile is learnt, as when serving


def warm_up(
    series: CountSeries,
    sound: CountSeries,
    first: int,
    sets: Sequence[Mapping[str, Array]],
    bands: Bands | None,
    start: Aggregation | None = None,
) -> Replay:
    """Aggregate the experts of a link slot by slot, once with each of several sets of trained models.

    The sets are the leading axis of what is returned. The last slots of the series have no profile for the slots
    after its end, which are not learnt from.

    Parameters
    ----------
    series : CountSeries
        Counts as they are stored, suspect or not.
    sound : CountSeries
        The same slots without suspect counts, from which profiles are learnt.
    first : int
        The slot that is forecast first.
    sets : sequence of mapping of str to (n_slots, n_horizons) array
        Forecasts of trained models by algorithm, of the slots from ``first`` on. The first horizon of a slot is the
        slot itself; NaN where there is no forecast. Horizons that are missing are NaN, others are left out.
    bands : Bands, optional
        Of the intervals.
    start : Aggregation, (n_sets, ...), optional
        The state before the first slot.
    """
    profiles = daily_profiles(sound, first)
    before = np.arange(first, len(series))[:, None] + np.arange(-RECENT, 0)
    recent = np.where(before < 0, np.nan, series.counts[np.maximum(before, 0)])
    inputs = ExpertInputs(profiles[:, RECENT:], recent, profiles[:, :RECENT])
    experts = [
        forecast_experts(replace(inputs, models={name: _nearest(of_model) for name, of_model in models.items()}))
        for models in sets
    ]
    near = None if bands is None else issued_bands(bands, N_HORIZONS)
    counts = np.broadcast_to(series.counts[first:], (len(sets), len(series) - first))
    return replay(np.stack(experts), counts, [near] * len(sets), start)


def daily_profiles(sound: CountSeries, first: int) -> Array:
    """Return the profile of the slots around each slot from ``first`` on, learnt from the 28 days before its day.

    Returns
    -------
    (n_slots, RECENT + N_HORIZONS) array
        Of the slots before each slot, of the slot itself and of those after it. NaN on a day before which there is no
        count. A slot outside the series is replaced by the nearest one in it.
    """
    n = len(sound)
    around = np.clip(np.arange(first, n)[:, None] + np.arange(-RECENT, N_HORIZONS), 0, n - 1)
    expected = np.full(around.shape, np.nan)
    midnights = (np.flatnonzero(np.diff(sound.weekday)) + 1).tolist()
    for begin, end in pairwise([0, *midnights, n]):
        past = sound.between(max(begin - PROFILE_DAYS * sound.slots_per_day, 0), begin)
        if end <= first or np.isnan(past.counts).all():
            continue
        profile = Profile.learn(past.counts, past.weekday, past.slot_of_day, past.slots_per_day)
        day = slice(max(begin - first, 0), end - first)
        expected[day] = profile.at(sound.weekday[around[day]], sound.slot_of_day[around[day]])
    return expected


def _nearest(expected: Array) -> Array:
    """Return forecasts at the horizons that are learnt from."""
    nearest = np.full((len(expected), N_HORIZONS), np.nan)
    nearest[:, : expected.shape[1]] = expected[:, :N_HORIZONS]
    return nearest
