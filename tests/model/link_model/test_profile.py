import numpy as np
import pytest

from model.link_model.profile import Profile

SLOTS = 4


def days(*weekdays: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(weekdays, SLOTS), np.tile(np.arange(SLOTS), len(weekdays))


def test_is_the_mean_by_weekday_and_slot_smoothed_over_neighbours():
    weekday, slot = days(*(7 * [0, 1, 2, 3, 4, 5, 6])[: 7 * 4])
    series = 10.0 * weekday + slot
    profile = Profile.learn(series, weekday, slot, SLOTS)
    assert profile.at(np.array([2]), np.array([1]))[0] == pytest.approx((20 + 2 * 21 + 22) / 4)
    # Over midnight the neighbour is the next weekday's first slot, and Sunday's is Monday's.
    assert profile.at(np.array([2]), np.array([3]))[0] == pytest.approx((22 + 2 * 23 + 30) / 4)
    assert profile.at(np.array([6]), np.array([3]))[0] == pytest.approx((62 + 2 * 63 + 0) / 4)


def test_gaps_are_left_out_not_counted_as_zero():
    weekday, slot = days(*([0, 1, 2, 3, 4, 5, 6] * 4))
    series = np.full(len(slot), 8.0)
    series[::3] = np.nan
    np.testing.assert_allclose(Profile.learn(series, weekday, slot, SLOTS).expected_counts, 8.0)


def test_a_weekday_with_too_few_days_leans_on_its_day_type():
    weekday, slot = days(0, 0, 0, 1)  # three Mondays, one Tuesday
    series = np.where(weekday == 0, 9.0, 1.0)
    profile = Profile.learn(series, weekday, slot, SLOTS)
    common = (3 * 9 + 1) / 4
    tuesday = (1 + 2 * common) / 3
    assert profile.expected_counts[0, 1] == pytest.approx(9.0)
    assert profile.expected_counts[1, 1] == pytest.approx(tuesday)
    assert profile.expected_counts[2, 1] == pytest.approx(common)


def test_a_day_type_never_seen_leans_on_the_time_of_day():
    weekday, slot = days(0, 0, 0)
    profile = Profile.learn(slot.astype(float), weekday, slot, SLOTS)
    assert profile.expected_counts[6, 1] == pytest.approx(profile.expected_counts[2, 1])


def test_a_slot_never_seen_leans_on_everything():
    weekday, slot = days(0, 0, 0)
    series = np.where(slot == 2, np.nan, 6.0)
    np.testing.assert_allclose(Profile.learn(series, weekday, slot, SLOTS).expected_counts, 6.0)


def test_refuses_a_series_without_counts_and_shapes_that_disagree():
    weekday, slot = days(0)
    with pytest.raises(ValueError, match="none of the 4 slots has a count"):
        Profile.learn(np.full(4, np.nan), weekday, slot, SLOTS)
    with pytest.raises(ValueError, match="they must agree"):
        Profile.learn(np.ones(3), weekday, slot, SLOTS)
