import numpy as np
import pytest

from app.evaluation.days import Span
from model.link_model.training import NotEnoughCounts
from tests.support.evaluation import steady_link, with_counts


def test_a_gap_in_a_test_window_is_filled_with_the_profile():
    link = steady_link()
    counts = link.counts.copy()
    counts[800] = np.nan
    span = Span.of(with_counts(link, counts), 8 * 96, 3)
    window = span.windows(np.array([802]))[0]
    np.testing.assert_array_equal(window[[0, 2]], counts[[801, 799]])
    assert window[1] == span.usual[800]
    assert span.usual[800] == pytest.approx(np.mean(link.counts[[800 - 96 * n for n in range(1, 9)]]), abs=6)
    assert len(span.test_slots) == 2 * 96


def test_training_rows_stop_at_the_test_days():
    span = Span.of(steady_link(), 8 * 96, 12)
    assert span.rows.positions.max() == 8 * 96 - 1
    assert len(span.rows.y) == 8 * 96 - 12


def test_the_profile_of_a_training_day_has_not_seen_that_day():
    link = steady_link()
    counts = link.counts.copy()
    counts[2 * 96 : 3 * 96] += 1000.0
    span = Span.of(with_counts(link, counts), 8 * 96, 12)
    honest = span.usual_without_own_day()
    assert honest[2 * 96 + 10 : 3 * 96 - 10].max() < 200.0
    assert span.usual[2 * 96 + 10 : 3 * 96 - 10].min() > 100.0
    assert honest[4 * 96 + 10] > 100.0  # the other days have seen it


def test_last_week_is_filled_too():
    link = steady_link()
    counts = link.counts.copy()
    counts[2 * 96 + 5] = np.nan
    span = Span.of(with_counts(link, counts), 8 * 96, 12)
    assert span.last_week()[9 * 96 + 5] == span.usual[2 * 96 + 5]
    assert span.last_week()[9 * 96 + 6] == counts[2 * 96 + 6]


def test_no_whole_window_is_refused():
    with pytest.raises(NotEnoughCounts, match="0 whole windows of 700 lags"):
        _ = Span.of(steady_link(), 600, 700).rows
