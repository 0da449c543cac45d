from datetime import UTC, datetime

import numpy as np
import pytest

from app.core.slots import SlotGrid, zone_named
from model.link_model.series import CountSeries


def melbourne(days: int) -> CountSeries:
    """Return consecutive slots from 20 October 2006; clocks skip an hour on the 29th. Counts encode the local slot."""
    grid, zone = SlotGrid(), zone_named("Australia/Melbourne")
    first = grid.number(datetime(2006, 10, 19, 14, tzinfo=UTC))
    calendar = grid.calendar(first, days * 96, zone)
    day = np.concatenate([[0], np.cumsum(np.diff(calendar.weekday) != 0)])
    counts = (1000 * day + calendar.slot_of_day).astype(float)
    return CountSeries(counts, calendar.weekday, calendar.slot_of_day, 96)


def test_last_week_is_by_the_local_clock_across_a_clock_change():
    series = melbourne(14)
    last = series.last_week()
    after = np.flatnonzero(series.counts >= 7000)
    np.testing.assert_array_equal(last[after], series.counts[after] - 7000)
    assert np.isnan(last[:672]).all()


def test_a_slot_that_did_not_exist_last_week_has_none():
    series = melbourne(20)
    sunday_after = (series.counts >= 16000) & (series.counts < 17000)  # 5 November: its 2:00 had no 29 October
    missing = np.isnan(series.last_week()[sunday_after])
    assert series.slot_of_day[sunday_after][missing].tolist() == [8, 9, 10, 11]


def test_an_empty_series_has_no_last_week():
    empty = np.zeros(0, dtype=np.int64)
    assert len(CountSeries(np.zeros(0), empty, empty, 96).last_week()) == 0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="they must be one-dimensional and agree"):
        CountSeries(np.zeros(3), np.zeros(2, dtype=np.int64), np.zeros(3, dtype=np.int64), 96)
