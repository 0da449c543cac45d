from math import exp, nan

import numpy as np
import pytest

from model.aggregation.intervals import LEAST_FACTOR, LEVELS, STEP, IntervalFactors, normal_factor


def misses_of(errors: np.ndarray) -> np.ndarray:
    """Follow errors with bands that reach 10 vehicles to each side; return the misses, (n_slots, 2, n_levels)."""
    factors, misses = IntervalFactors.start(), []
    for error in errors:
        reach = 10.0 * np.maximum.accumulate(factors.factors, axis=1)
        misses.append([-error > reach[0], error > reach[1]])
        factors = factors.after(1000.0, 10.0, 10.0, 1000.0 + error)
    return np.array(misses)


def slow_after(factors: np.ndarray, expected: float, below: float, above: float, count: float) -> np.ndarray:
    """Follow one count, in plain loops."""
    out = factors.copy()
    for side, offset in enumerate((below, above)):
        for index, level in enumerate(LEVELS):
            reach = factors[side, index] * max(offset, 0.5)
            missed = count < expected - reach if side == 0 else count > expected + reach
            tail = (1 - level) / 2
            out[side, index] = factors[side, index] * exp(STEP * ((1 - tail) if missed else -tail))
    return out


def test_equals_plain_loops(rng):
    factors = IntervalFactors.start()
    for _ in range(300):
        expected, below, above, count = rng.uniform(0, 90), rng.uniform(0, 9), rng.uniform(0, 9), rng.uniform(0, 99)
        slow = slow_after(factors.factors, expected, below, above, count)
        factors = factors.after(expected, below, above, count)
        np.testing.assert_allclose(factors.factors, slow)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_each_side_is_missed_as_often_as_planned_after_a_change_of_scale(rng, scale):
    skewed = rng.exponential(6.0, 9000) - 6.0  # far above, seldom far below
    skewed[1000:] *= scale
    misses = misses_of(skewed)
    tails = (1 - np.array(LEVELS)) / 2
    # After a step in scale s, at most log(s) / STEP more or fewer misses than usual in all.
    np.testing.assert_allclose(misses[3000:].mean(axis=0), [tails, tails], atol=0.012)


def test_misses_become_usual_again_within_a_day_of_restless_counts(rng):
    errors = rng.normal(0, 6, 3000)
    errors[1500:] *= 4
    misses = misses_of(errors)
    at_90 = misses[..., LEVELS.index(0.9)].any(axis=1)
    assert at_90[1500:1520].mean() > 0.3
    assert at_90[1596:2500].mean() == pytest.approx(0.1, abs=0.04)


def test_starts_with_the_bands_and_normal_errors_for_other_levels():
    start = IntervalFactors.start(3, 2)
    assert start.factors.shape == (3, 2, 2, len(LEVELS))
    lower, upper = start.around(np.full((3, 2), 50.0), np.full((3, 2), 10.0), np.full((3, 2), 20.0))
    np.testing.assert_allclose(lower, 40.0)
    np.testing.assert_allclose(upper, 70.0)
    for level in (0.1, 0.5, 0.6, 0.85, 0.97, 0.99, 0.999):
        np.testing.assert_allclose(start.at(level), normal_factor(level))


def test_a_higher_level_is_never_narrower(rng):
    for _ in range(20):
        factors = IntervalFactors(rng.uniform(0.05, 3.0, (4, 2, len(LEVELS))))  # in no order
        ends = [factors.around(*np.full((3, 4), 50.0), level) for level in np.linspace(0.01, 0.999, 60)]
        assert (np.diff([lower for lower, _ in ends], axis=0) <= 1e-9).all()
        assert (np.diff([upper for _, upper in ends], axis=0) >= -1e-9).all()


def test_levels_between_those_that_are_followed_are_interpolated():
    factors = IntervalFactors(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]] * 2))
    for level, factor in zip(LEVELS, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True):
        np.testing.assert_allclose(factors.at(level), factor)
    assert 2.0 < factors.at(0.85)[0] < 3.0
    reach = normal_factor([0.8, 0.85, 0.9])
    assert factors.at(0.85)[0] == pytest.approx(2.0 + (reach[1] - reach[0]) / (reach[2] - reach[0]))


def test_levels_beyond_are_those_of_normal_errors_relative_to_the_nearest():
    factors = IntervalFactors(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]] * 2))
    assert factors.at(0.25)[1] == pytest.approx(1.0 * normal_factor(0.25) / normal_factor(0.5))
    assert factors.at(0.999)[1] == pytest.approx(5.0 * normal_factor(0.999) / normal_factor(0.99))


def test_never_falls_below_zero():
    lower, upper = IntervalFactors.start().around(3.0, 10.0, 10.0)
    assert lower == 0.0
    assert upper == 13.0


def test_a_band_without_width_is_widened_all_the_same():
    factors = IntervalFactors.start()
    for _ in range(200):
        factors = factors.after(20.0, 0.0, 0.0, 25.0)
    lower, upper = factors.around(20.0, 0.0, 0.0)
    assert lower < 20.0
    assert upper >= 25.0


def test_intervals_widen_within_a_day_after_weeks_of_exact_forecasts():
    factors = IntervalFactors.start()
    for _ in range(2000):  # the floor is reached before
        factors = factors.after(0.0, 10.0, 10.0, 0.0)
    assert (factors.factors >= LEAST_FACTOR).all()
    for _ in range(96):
        factors = factors.after(50.0, 10.0, 10.0, 58.0)
    assert factors.around(50.0, 10.0, 10.0)[1] >= 58.0


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, nan])
def test_a_level_outside_of_zero_to_one_is_refused(level):
    with pytest.raises(ValueError, match=r"level=.* is refused; it must be between 0 and 1"):
        IntervalFactors.start().around(10.0, 1.0, 1.0, level)


def test_a_missing_count_or_forecast_changes_nothing(rng):
    before = IntervalFactors(rng.uniform(0.5, 2.0, (3, 2, len(LEVELS))))
    after = before.after([10.0, nan, 10.0], [1.0, nan, 1.0], [1.0, nan, 1.0], [nan, 10.0, 11.0])
    np.testing.assert_array_equal(after.factors[:2], before.factors[:2])
    assert (after.factors[2] != before.factors[2]).all()


def test_a_count_at_the_end_of_an_interval_is_inside():
    factors = IntervalFactors(np.ones((2, len(LEVELS))))
    after = factors.after(50.0, 10.0, 10.0, 60.0)
    assert (after.factors < 1.0).all()


def test_links_at_once_equal_links_one_by_one(rng):
    together, alone = IntervalFactors.start(3), [IntervalFactors.start() for _ in range(3)]
    for _ in range(100):
        expected, below, above = rng.uniform(20, 90, 3), rng.uniform(0, 9, 3), rng.uniform(0, 9, 3)
        counts = np.where(rng.random(3) < 0.2, nan, rng.uniform(0, 99, 3))
        together = together.after(expected, below, above, counts)
        parts = zip(alone, expected, below, above, counts, strict=True)
        alone = [factors.after(*rest) for factors, *rest in parts]
    np.testing.assert_allclose(together.factors, [factors.factors for factors in alone])
