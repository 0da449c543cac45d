from math import nan

import numpy as np
import pytest

from model.aggregation.experts import faded, last_count, scaled_profile


class TestLastCount:
    def test_is_the_count_and_then_the_profile_shifted_by_its_deviation(self):
        np.testing.assert_array_equal(last_count([100.0, 110.0, 120.0], 70.0, 90.0), [70.0, 90.0, 100.0])

    def test_is_never_below_zero(self):
        np.testing.assert_array_equal(last_count([30.0, 10.0, 20.0], 0.0, 25.0), [0.0, 0.0, 0.0])

    def test_a_missing_count_leaves_no_forecast(self):
        assert np.isnan(last_count([30.0, 10.0], nan, 25.0)).all()

    def test_links_at_once_equal_links_one_by_one(self, rng):
        profile, latest, usual = rng.uniform(0, 99, (5, 4)), rng.uniform(0, 99, 5), rng.uniform(0, 99, 5)
        latest[2] = nan
        together = last_count(profile, latest, usual)
        for row in range(5):
            np.testing.assert_array_equal(together[row], last_count(profile[row], latest[row], usual[row]))

    def test_its_arguments_are_not_changed(self):
        profile = np.array([1.0, 2.0])
        last_count(profile, 5.0, 1.0)
        np.testing.assert_array_equal(profile, [1.0, 2.0])


class TestScaledProfile:
    def test_is_scaled_by_the_sums_of_recent_slots(self):
        np.testing.assert_allclose(scaled_profile([100.0, 80.0], [10, 0, 20, 30], [30, 30, 30, 30]), [50.0, 40.0])

    def test_gaps_are_left_out_of_both_sums(self):
        np.testing.assert_allclose(scaled_profile([100.0], [nan, 10, nan, 20], [900, 10, 900, 10]), [150.0])

    def test_without_recent_counts_it_is_the_profile(self):
        np.testing.assert_array_equal(scaled_profile([100.0, 80.0], [nan] * 4, [30] * 4), [100.0, 80.0])

    def test_zeros_make_zero(self):
        np.testing.assert_array_equal(scaled_profile([100.0, 80.0], [0] * 4, [30] * 4), [0.0, 0.0])

    @pytest.mark.parametrize("usual", [0.0, 0.2, 0.249])
    def test_a_profile_of_less_than_one_vehicle_is_not_scaled(self, usual):
        np.testing.assert_array_equal(scaled_profile([2.0], [9] * 4, [usual] * 4), [2.0])

    def test_the_ratio_is_bounded(self):
        np.testing.assert_array_equal(scaled_profile([10.0], [90] * 4, [1] * 4), [30.0])

    def test_takes_the_twelve_slots_of_an_hour_as_well(self):
        np.testing.assert_allclose(scaled_profile([10.0], [3] * 12, [2] * 12), [15.0])

    def test_links_at_once_equal_links_one_by_one(self, rng):
        profile, recent, usual = rng.uniform(0, 99, (6, 3)), rng.poisson(4.0, (6, 4)) * 1.0, rng.uniform(0, 2, (6, 4))
        recent[1], recent[2, 1:3], usual[3] = nan, nan, 0.0
        together = scaled_profile(profile, recent, usual)
        for row in range(6):
            np.testing.assert_array_equal(together[row], scaled_profile(profile[row], recent[row], usual[row]))


class TestFaded:
    def test_keeps_the_horizons_it_is_given_and_ends_at_the_profile(self):
        profile = np.full(96, 50.0)
        forecasts = faded([80.0, 75.0, 72.0, 70.0], profile, 96, 15.0)
        np.testing.assert_array_equal(forecasts[:4], [80.0, 75.0, 72.0, 70.0])
        assert (np.diff(forecasts[4:]) < 0.0).all()
        assert forecasts[-1] == pytest.approx(50.0, abs=0.01)

    @pytest.mark.parametrize(("slot_minutes", "slots"), [(15.0, 4), (5.0, 12)])
    def test_a_deviation_halves_in_an_hour(self, slot_minutes, slots):
        forecasts = faded([70.0], np.full(288, 50.0), 288, slot_minutes)
        assert forecasts[slots] == pytest.approx(60.0)
        assert forecasts[2 * slots] == pytest.approx(55.0)

    def test_takes_the_mean_deviation_of_the_horizons(self):
        forecasts = faded([58.0, 54.0, 62.0, 42.0], [50.0, 50.0, 60.0, 40.0, 30.0], 5, 60.0)
        assert forecasts[4] == 30.0 + (8.0 + 4.0 + 2.0 + 2.0) / 4 / 2

    def test_follows_the_profile_of_each_slot(self, rng):
        profile = rng.uniform(50, 99, 12)
        forecasts = faded(profile[:4] + 8.0, profile, 12, 15.0)
        np.testing.assert_allclose(forecasts[4:], profile[4:] + 8.0 * 0.5 ** (np.arange(1, 9) / 4))

    def test_is_never_below_zero(self):
        assert (faded([0.0], [90.0, *[10.0] * 9], 10, 15.0) >= 0.0).all()

    @pytest.mark.parametrize("n_slots", [1, 3, 4])
    def test_fewer_slots_than_horizons_are_the_nearest_ones(self, n_slots):
        np.testing.assert_array_equal(faded([4.0, 3, 2, 1], [9.0] * 4, n_slots, 15.0), [4.0, 3, 2, 1][:n_slots])

    def test_without_a_forecast_there_is_none_beyond_it(self):
        assert np.isnan(faded([nan], np.full(8, 5.0), 8, 15.0)).all()

    def test_links_at_once_equal_links_one_by_one(self, rng):
        near, profile = rng.uniform(0, 99, (2, 3, 4)), rng.uniform(0, 99, (2, 3, 20))
        together = faded(near, profile, 20, 15.0)
        assert together.shape == (2, 3, 20)
        np.testing.assert_array_equal(together[1, 2], faded(near[1, 2], profile[1, 2], 20, 15.0))
