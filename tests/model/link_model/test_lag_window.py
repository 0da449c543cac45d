import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.link_model.lag_window import LagWindow, TooManyGaps

NAN = float("nan")


class TestTrainingSet:
    def test_each_row_is_the_past_of_its_count(self):
        X, y, positions = LagWindow((1, 2, 5)).training_set(np.arange(8.0))
        assert X.tolist() == [[4, 3, 0], [5, 4, 1], [6, 5, 2]]
        assert y.tolist() == [5, 6, 7]
        assert positions.tolist() == [5, 6, 7]

    def test_the_papers_size(self):
        X, _, positions = LagWindow(45).training_set(np.arange(2112.0))
        assert X.shape == (2067, 45)
        assert (positions[0], positions[-1]) == (45, 2111)

    def test_a_window_that_touches_a_gap_is_left_out_and_a_gap_is_no_target(self):
        series = np.arange(10.0)
        series[4] = NAN
        X, y, positions = LagWindow(2).training_set(series)
        assert positions.tolist() == [2, 3, 7, 8, 9]
        assert not np.isnan(X).any()
        assert not np.isnan(y).any()

    @pytest.mark.parametrize("length", [0, 1, 3])
    def test_a_short_series_has_no_windows(self, length):
        X, y, positions = LagWindow(3).training_set(np.ones(length))
        assert X.shape == (0, 3)
        assert len(y) == len(positions) == 0

    @given(st.lists(st.one_of(st.just(NAN), st.integers(0, 99).map(float)), min_size=1, max_size=60))
    def test_training_and_serving_build_the_same_window(self, series):
        window = LagWindow((1, 3, 4))
        X, _, positions = window.training_set(series)
        for row, position in zip(X, positions, strict=True):
            latest = window.latest(series[:position])
            assert latest.filled_lags == 0
            np.testing.assert_array_equal(latest.window[0], row)


class TestLatest:
    def test_gaps_are_filled_from_the_profile_and_counted(self):
        window, filled = LagWindow(5).latest([1, 2, NAN, 4, 5], fill=[10, 20, 30, 40, 50])
        assert window.tolist() == [[5, 4, 30, 2, 1]]
        assert filled == 1

    def test_more_gaps_than_allowed_are_refused_with_their_number(self):
        with pytest.raises(TooManyGaps, match="2 of 5 lags are missing; at most 1 may be filled"):
            LagWindow(5).latest([1, NAN, NAN, 4, 5], fill=np.ones(5))

    def test_the_share_is_a_parameter(self):
        assert LagWindow(5).latest([1, NAN, NAN, 4, 5], fill=np.ones(5), most_filled=0.4).filled_lags == 2

    def test_without_a_filling_no_gap_is_allowed(self):
        with pytest.raises(TooManyGaps, match="1 of 2 lags are missing; at most 0"):
            LagWindow(2).latest([1.0, NAN])

    def test_a_filling_with_gaps_of_its_own_is_refused(self):
        with pytest.raises(TooManyGaps, match="1 of 5 lags have nothing to fill them"):
            LagWindow(5).latest([1, 2, NAN, 4, 5], fill=[1, 1, NAN, 1, 1])

    def test_a_series_shorter_than_the_window_is_refused(self):
        with pytest.raises(TooManyGaps, match="has 4 slots; the window reaches back 96"):
            LagWindow((1, 96)).latest(np.ones(4))

    def test_a_filling_of_another_length_is_refused(self):
        with pytest.raises(ValueError, match=r"fill has shape \(3,\), the series \(2,\)"):
            LagWindow(2).latest([1.0, 2.0], fill=np.ones(3))


@pytest.mark.parametrize("lags", [0, -1, [], [0, 1], [2, 2], "many", None, [1, "x"], True])
def test_refuses_other_lags(lags):
    with pytest.raises(ValueError, match=r"lags=.* is refused"):
        LagWindow(lags)


def test_refuses_series_that_are_none():
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        LagWindow(1).training_set(np.ones((2, 2)))
    with pytest.raises(ValueError, match="infinite count at slot 1"):
        LagWindow(1).training_set([1.0, np.inf])


def test_repr_shows_its_lags():
    assert repr(LagWindow()) == "LagWindow(lags=45)"
    assert repr(LagWindow((1, 96))) == "LagWindow(lags=(1, 96))"
