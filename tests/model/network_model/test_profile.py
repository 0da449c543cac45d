import numpy as np
import pytest

from model.network_model.profile import NetworkProfile, scale_of
from tests.support.networks import synthetic_network


def learnt(series, days=None):
    weekday = series.calendar.weekday[:: series.calendar.slots_per_day]
    days = series.days if days is None else days
    return NetworkProfile.learn(series.by_day[:, :days], weekday[:days])


def test_a_week_is_found_again():
    series = synthetic_network(days=42)
    profile = learnt(series)
    profile_counts = profile.expected_counts[:, series.calendar.weekday, series.calendar.slot_of_day]
    explained = 1.0 - np.var(series.counts - profile_counts, axis=1) / np.var(series.counts, axis=1)
    assert explained.min() > 0.85
    assert (profile.expected_counts >= 0.0).all()


def test_days_a_young_link_has_never_seen_come_from_the_network():
    series = synthetic_network(links=12, days=21)
    counts = series.counts.copy()
    counts[0, : 19 * 24] = np.nan  # a Saturday and a Sunday are left
    by_day = counts.reshape(12, 21, 24)
    weekday = series.calendar.weekday[::24]
    young = NetworkProfile.learn(by_day, weekday).expected_counts[0]
    truth = learnt(series).expected_counts[0]
    assert not np.isnan(young).any()
    own_mean = np.nanmean(counts[0])
    error = np.sqrt(np.mean((young[:5] - truth[:5]) ** 2))
    assert error < 0.8 * np.sqrt(np.mean((own_mean - truth[:5]) ** 2))


def test_a_link_without_counts_has_none():
    series = synthetic_network()
    by_day = series.by_day.copy()
    by_day[3] = np.nan
    profile = NetworkProfile.learn(by_day, series.calendar.weekday[::24])
    assert np.isnan(profile.expected_counts[3]).all()
    assert not np.isnan(np.delete(profile.expected_counts, 3, axis=0)).any()


def test_a_network_that_has_seen_no_weekend_makes_do():
    series = synthetic_network(days=3)  # Monday to Wednesday
    profile = learnt(series)
    assert not np.isnan(profile.expected_counts).any()


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_constant_links_are_no_trouble(level):
    series = synthetic_network()
    by_day = series.by_day.copy()
    by_day[0] = level
    profile = NetworkProfile.learn(by_day, series.calendar.weekday[::24])
    assert profile.expected_counts[0] == pytest.approx(level, abs=0.25 * level + 1e-9)
    assert (profile.scale > 0.0).all()


def test_the_unit_of_a_link_is_its_spread_but_no_less_than_chance_makes_it():
    series = synthetic_network()
    tables = learnt(series).expected_counts
    np.testing.assert_array_equal(scale_of(tables), tables.std(axis=(1, 2)))
    alike = np.full((3, 7, 24), [[[0.0]], [[4.0]], [[np.nan]]])
    assert scale_of(alike).tolist() == [1.0, 2.0, 1.0]
    assert scale_of(tables[2]) == scale_of(tables)[2]
    assert scale_of(tables.astype(np.float32)) == pytest.approx(scale_of(tables), rel=1e-6)


def test_more_days_than_a_link_has_weigh_less_than_its_own():
    series = synthetic_network(days=42)
    by_day = series.by_day.copy()
    by_day[0] = by_day[0][:, ::-1]  # a link whose day runs backwards, unlike all others
    profile = NetworkProfile.learn(by_day, series.calendar.weekday[::24])
    means = by_day[0][series.calendar.weekday[::24] < 5].mean(axis=0)
    assert np.corrcoef(profile.expected_counts[0, 2], means)[0, 1] > 0.95
