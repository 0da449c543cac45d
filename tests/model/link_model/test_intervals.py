import numpy as np
import pytest

from model.link_model.intervals import Bands


def uneven(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return forecasts at two horizons whose errors grow with the level."""
    expected = rng.uniform(0, 200, (n, 2))
    return expected, np.maximum(expected + rng.standard_normal((n, 2)) * np.sqrt(expected + 1) * [1, 2], 0)


def test_covers_new_counts_at_the_stated_level_at_low_and_at_high_flow(rng):
    bands = Bands.learn(*uneven(rng, 3000), level=0.9)
    expected, counts = uneven(rng, 4000)
    lower, upper = bands.around(expected)
    for h in (0, 1):
        for low, high in ((0, 60), (60, 140), (140, 200)):
            here = (expected[:, h] >= low) & (expected[:, h] < high)
            share = np.mean((lower[here, h] <= counts[here, h]) & (counts[here, h] <= upper[here, h]))
            assert 0.86 < share < 0.94


def test_is_wider_where_flow_is_higher_and_further_ahead(rng):
    bands = Bands.learn(*uneven(rng, 3000))
    lower, upper = bands.around(np.array([[20.0, 20.0], [180.0, 180.0]]))
    width = upper - lower
    assert width[1, 0] > 1.5 * width[0, 0]
    assert width[1, 1] > 1.5 * width[1, 0]


def test_never_falls_below_zero_and_holds_the_forecast(rng):
    bands = Bands.learn(*uneven(rng, 500))
    expected = np.linspace(0, 5, 50)[:, None] * [1, 1]
    lower, upper = bands.around(expected)
    assert (lower >= 0).all()
    assert (lower <= expected).all()
    assert (upper >= expected).all()


def test_missing_counts_are_left_out(rng):
    expected, counts = uneven(rng, 900)
    gaps = counts.copy()
    gaps[::3] = np.nan
    whole = np.delete(np.arange(900), np.arange(0, 900, 3))
    one, other = Bands.learn(expected, gaps), Bands.learn(expected[whole], counts[whole])
    np.testing.assert_array_equal(one.above, other.above)


def test_few_errors_make_one_bin_and_too_few_are_refused(rng):
    assert Bands.learn(*uneven(rng, 50)).below.shape == (2, 1)
    with pytest.raises(ValueError, match="19 held-out forecasts are too few for an interval of 90%"):
        Bands.learn(*uneven(rng, 19))


def test_the_same_forecast_again_and_again_is_no_trouble():
    bands = Bands.learn(np.full((300, 1), 7.0), np.arange(300.0)[:, None] % 15, level=0.8)
    lower, upper = bands.around(np.array([[7.0]]))
    assert lower[0, 0] <= 2
    assert upper[0, 0] >= 12


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 2])
def test_refuses_other_levels(rng, level):
    with pytest.raises(ValueError, match=f"level={level} is refused"):
        Bands.learn(*uneven(rng, 100), level=level)
