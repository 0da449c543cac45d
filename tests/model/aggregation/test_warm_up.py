"""The aggregation of a link's experts over its held-out days."""

import numpy as np
import pytest

from model.aggregation.experts import EXPERT_NAMES
from model.aggregation.intervals import normal_factor
from model.aggregation.warm_up import PROFILE_DAYS, daily_profiles, warm_up
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.link_model.series import CountSeries

A_DAY, DAYS, HELD_OUT = 24, 12, 4
FIRST = (DAYS - HELD_OUT) * A_DAY
PLACES = {name: EXPERT_NAMES.index(name) for name in EXPERT_NAMES}


@pytest.fixture
def series():
    slots = np.arange(DAYS * A_DAY)
    rng = np.random.default_rng(3)
    counts = rng.poisson(60.0 + 40.0 * np.sin(slots * 2 * np.pi / A_DAY)).astype(float)
    return CountSeries(counts, slots // A_DAY % 7, slots % A_DAY, A_DAY)


def exact(series, noise=0.0):
    """Return forecasts of the held-out slots that are wrong by a constant."""
    padded = np.concatenate([series.counts, np.full(4, np.nan)])
    return np.stack([padded[FIRST + h : len(series) + h] for h in range(4)], axis=1) + noise


def test_the_best_model_has_the_largest_weight_in_its_set(series):
    sets = [{}, {"NETWORK": exact(series, 1.0)}, {"NETWORK": exact(series, 1.0), "KR_SML": exact(series, 0.1)}]
    done = warm_up(series, series, FIRST, sets, None)
    assert done.expected.shape == (3, HELD_OUT * A_DAY, 4)
    last = done.weights[:, -5, 0]
    assert last[0, PLACES["NETWORK"]] == last[0, PLACES["KR_SML"]] == last[1, PLACES["KR_SML"]] == 0.0
    assert np.argmax(last[1]) == PLACES["NETWORK"]
    assert np.argmax(last[2]) == PLACES["KR_SML"]
    errors = np.sqrt(np.nanmean((done.expected[:, :, 0] - series.counts[FIRST:]) ** 2, axis=1))
    assert errors[0] > errors[1] > errors[2]


def test_each_set_is_as_by_itself(series):
    sets = [{"NETWORK": exact(series, 2.0)}, {"KR_SML": exact(series, -3.0)}]
    both = warm_up(series, series, FIRST, sets, None)
    for row, one in enumerate(sets):
        np.testing.assert_array_equal(warm_up(series, series, FIRST, [one], None).expected[0], both.expected[row])


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("horizons", [2, 4, 6])
def test_bands_of_any_level_and_horizons_are_those_that_are_issued(series, level, horizons):
    reach = 20.0 * float(normal_factor(level))
    ends = [np.full((horizons, 1), side * reach) for side in (-1.0, 1.0)]
    bands = Bands(level, np.empty((horizons, 0)), *ends)
    done = warm_up(series, series, FIRST, [{"NETWORK": exact(series, 1.0)}], bands)
    known = ~np.isnan(done.below)
    assert known.any()
    np.testing.assert_allclose(done.below[known], np.minimum(done.expected, 20.0)[known])
    np.testing.assert_allclose(done.above[known], 20.0)


def test_nothing_is_known_of_the_slots_to_come(series):
    later = series.counts.copy()
    later[FIRST + 30 :] += 500.0
    changed = CountSeries(later, series.weekday, series.slot_of_day, A_DAY)
    models = {"NETWORK": exact(series, 1.0)}
    one, other = (warm_up(of, of, FIRST, [models], None).expected[0] for of in (series, changed))
    np.testing.assert_array_equal(one[:31], other[:31])
    assert (one[31:] != other[31:]).any()


def test_profiles_are_those_of_the_days_before(series):
    profiles = daily_profiles(series, FIRST)
    assert profiles.shape == (HELD_OUT * A_DAY, 8)
    day = FIRST + A_DAY
    past = series.between(max(0, day - PROFILE_DAYS * A_DAY), day)
    learnt = Profile.learn(past.counts, past.weekday, past.slot_of_day, A_DAY)
    np.testing.assert_array_equal(
        profiles[A_DAY : 2 * A_DAY, 4],
        learnt.at(series.weekday[day : day + A_DAY], series.slot_of_day[day : day + A_DAY]),
    )


def test_a_link_whose_first_counts_are_held_out_has_no_profile_at_first(series):
    young = series.between(FIRST, len(series))
    done = warm_up(young, young, 0, [{"NETWORK": exact(series, 1.0)}], None)
    assert np.isnan(daily_profiles(young, 0)[:A_DAY]).all()
    assert not np.isnan(done.expected[0, :, 0]).any()
    assert not done.weights[0, :A_DAY, 0, PLACES["profile"]].any()
