from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.network_model.context import FLOOR, RECENT, ContextParts, ContextSource
from model.network_model.days import NetworkDays
from model.network_model.deviations import mean_deviation
from model.network_model.network import others_at_junction
from model.network_model.series import NetworkCalendar
from tests.support.networks import QUICK, synthetic_network

SERIES = synthetic_network()
DAYS = NetworkDays(SERIES, QUICK)
ROWS = np.arange(13 * 24, 13 * 24 + 24)


def source(counts=SERIES.counts, parts=None, **changes):
    profile = changes.pop("profile", DAYS.profile(13))
    junction = others_at_junction(SERIES.junction)
    return ContextSource(
        counts, SERIES.calendar, profile, junction, SERIES.upstream, parts or ContextParts(), **changes
    )


def column(rows, name, parts=None):
    names = [column for _, column in (parts or ContextParts()).columns]
    return rows.columns[:, :, names.index(name)]


@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
@settings(max_examples=25, deadline=None)
@given(row=st.integers(10 * 24, 17 * 24), link=st.integers(0, 8), value=st.sampled_from([0.0, 1e4, np.nan]))
def test_no_column_changes_when_later_counts_change(horizon, row, link, value):
    later = SERIES.counts.copy()
    later[link, row:] = value
    changed = replace(SERIES, counts=later)
    day = row // 24
    before = NetworkDays(SERIES, QUICK)
    after = NetworkDays(changed, QUICK)
    known, then = (days.source(days.profile(day)).rows(np.array([row]), horizon) for days in (before, after))
    assert np.array_equal(known.columns, then.columns)
    assert np.array_equal(known.profile, then.profile)
    assert np.array_equal(known.filled, then.filled)


def test_earlier_counts_do_change_columns():
    earlier = SERIES.counts.copy()
    earlier[0, ROWS[0] - 1] += 50
    assert not np.array_equal(source().rows(ROWS, 1).columns, source(earlier).rows(ROWS, 1).columns)


def test_columns_are_what_their_names_say():
    rows, profile = source().rows(ROWS, 2), DAYS.profile(13)
    scaled = (SERIES.counts - profile.center[:, None]) / profile.scale[:, None]
    profile_counts = profile.expected_counts[:, SERIES.calendar.weekday, SERIES.calendar.slot_of_day]
    deviation = scaled - (profile_counts - profile.center[:, None]) / profile.scale[:, None]
    assert np.allclose(column(rows, "count 1"), scaled[:, ROWS - 1])
    assert np.allclose(column(rows, "deviation 3"), deviation[:, ROWS - 3])
    assert np.allclose(column(rows, "count yesterday"), scaled[:, ROWS + 1 - 24])
    assert np.allclose(column(rows, "deviation last week"), deviation[:, ROWS + 1 - 7 * 24])
    assert np.allclose(column(rows, "network 1"), mean_deviation(deviation)[ROWS - 1])
    assert np.allclose(column(rows, "upstream 1")[1], deviation[0, ROWS - 1])
    assert np.allclose(column(rows, "upstream 1")[0], mean_deviation(deviation)[ROWS - 1])  # none: the network's
    assert np.allclose(column(rows, "junction 2")[4], deviation[[3, 5]].mean(axis=0)[ROWS - 2])
    assert np.allclose(
        column(rows, "mean deviation 4")[2], np.mean([deviation[2, ROWS - k] for k in (1, 2, 3, 4)], axis=0)
    )
    counted = np.sum([SERIES.counts[2, ROWS - lag] for lag in (1, 2, 3, 4)], axis=0)
    expected = np.sum([profile_counts[2, ROWS - lag] for lag in (1, 2, 3, 4)], axis=0)
    relative = (counted - expected) / (expected + 4 * FLOOR * profile.scale[2])
    assert np.allclose(
        column(rows, "relative deviation 4")[2], relative * profile_counts[2, ROWS + 1] / profile.scale[2]
    )
    assert set(column(rows, "Monday to Friday").ravel()) <= {0.0, 1.0}


def test_a_missing_count_is_taken_to_deviate_as_the_network_does():
    gaps = SERIES.counts.copy()
    gaps[2, ROWS[5] - 1] = np.nan
    rows = source(gaps).rows(ROWS, 1)
    assert column(rows, "deviation 1")[2, 5] == pytest.approx(column(rows, "network 1")[2, 5])
    assert column(rows, "deviation 1")[2, 5] != 0.0
    assert rows.filled[2, 5] == 1
    assert rows.filled[2, 4] == 0
    assert not np.isnan(rows.columns).any()


def test_without_any_count_the_network_deviates_as_before():
    gaps = SERIES.counts.copy()
    gaps[:, ROWS[5] - 1] = np.nan
    rows = source(gaps).rows(ROWS[5:6], 1)
    whole = source().rows(ROWS[5:6], 1)
    assert column(rows, "network 1")[0, 0] == pytest.approx(column(whole, "network 2")[0, 0])
    assert (rows.filled == 1).all()


def test_some_links_with_the_deviations_of_all_have_the_same_rows():
    all_of_them = source()
    kept = np.array([3, 4, 5])
    slots = np.arange(len(SERIES.calendar))
    network_deviations = mean_deviation(all_of_them.standardised(slots) - all_of_them.standardised_profile(slots))
    profile = DAYS.profile(13)
    some = ContextSource(
        SERIES.counts[kept],
        SERIES.calendar,
        type(profile)(profile.expected_counts[kept], profile.by_day_type[kept]),
        ((1, 2), (0, 2), (0, 1)),
        ((), (0,), (1,)),
        ContextParts(),
        dict(enumerate(network_deviations)),
    )
    assert np.allclose(some.rows(ROWS, 3).columns, all_of_them.rows(ROWS, 3, kept).columns)


@pytest.mark.parametrize("name", [field.name for field in fields(ContextParts)])
def test_each_part_can_be_left_out(name):
    parts = replace(ContextParts(), **{name: False})
    assert name not in parts.names
    assert name not in {part for part, _ in parts.columns}
    assert source(parts=parts).rows(ROWS[:2], 1).columns.shape[2] == len(parts.columns)
    assert ContextParts.named(parts.names) == parts


@pytest.mark.parametrize("names", [[], ["weather"], ["lags", "wether"]])
def test_parts_that_do_not_exist_are_refused_by_name(names):
    with pytest.raises(ValueError, match="context="):
        ContextParts.named(names)


def test_yesterday_is_by_local_time_when_clocks_change():
    # The second day has 23 slots: its hour 2 is missing. The third day's hour 2 has no yesterday.
    of_day = np.concatenate([np.arange(24), np.delete(np.arange(24), 2), np.arange(24)])
    day = np.repeat([0, 1, 2], [24, 23, 24])
    calendar = NetworkCalendar(day % 7, of_day, day, 24)
    assert calendar.days_before(np.array([24 + 5]), 1).tolist() == [6]  # hour 6 of a day that lost hour 2
    third = 24 + 23
    assert calendar.days_before(np.array([third + 2]), 1).tolist() == [-1]
    assert calendar.days_before(np.array([third + 3]), 1).tolist() == [24 + 2]
    assert calendar.days_before(np.array([5]), 1).tolist() == [-1]


def test_rows_near_the_beginning_have_what_there_is():
    rows = source().rows(np.array([3]), 1)
    assert (rows.filled == RECENT - 3).all()
    assert not np.isnan(rows.columns).any()


def test_a_nearly_empty_link_does_not_dominate_the_mean():
    deviations = np.array([[0.1, 0.1], [-0.1, np.nan], [40.0, np.nan]])
    assert mean_deviation(deviations) == pytest.approx([2.0 / 3.0, 0.1])
