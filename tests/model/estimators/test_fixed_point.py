import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.estimators.fixed_point import FixedPoint


@given(st.integers(0, 2**31), st.floats(1e-12, 1e12))
def test_values_are_within_half_a_step_and_stay_there(seed, size):
    values = size * np.random.default_rng(seed).standard_normal((40, 3))
    stored = FixedPoint.of(values)
    assert stored.steps.dtype == np.int16
    assert (np.abs(stored.values() - values) <= 0.5001 * stored.unit).all()
    np.testing.assert_array_equal(FixedPoint.of(stored.values()).steps, stored.steps)


def test_gaps_zeros_and_empty_columns_survive():
    values = np.array([[np.nan, 0.0, np.nan], [2.0, 0.0, np.nan], [-1.0, 0.0, np.nan]])
    np.testing.assert_allclose(FixedPoint.of(values).values(), values, atol=1e-4)
    assert FixedPoint.of(np.empty((4, 0))).values().shape == (4, 0)
    assert FixedPoint.of(np.empty((0, 4))).values().shape == (0, 4)


def test_some_rows_are_the_same_as_in_the_whole(rng):
    stored = FixedPoint.of(rng.standard_normal((20, 3)))
    rows = np.array([[3, 4], [5, 3]])
    np.testing.assert_array_equal(stored.values(rows), stored.values()[rows])


def test_refuses_infinite_values():
    with pytest.raises(ValueError, match="infinite"):
        FixedPoint.of(np.array([[np.inf]]))
