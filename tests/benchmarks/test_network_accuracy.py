from dataclasses import replace

import numpy as np
import pytest

from app.counts.importers.reader import CountReader
from app.counts.series import series_of_files
from benchmarks.accuracy import select_links
from benchmarks.network_accuracy import BASE_ONLY, young_links
from benchmarks.network_baselines import SETTINGS, evaluation_rows, ridge_per_link, training_rows
from benchmarks.network_trial import Trial, align_counts, forecast_test_slots, groups_of, refreshed_nightly
from model.link_model.profile import Profile
from model.network_model.plan import NetworkPlan
from model.network_model.training import train_network

pytestmark = pytest.mark.journey


@pytest.fixture(scope="module")
def trial(real_file):
    with CountReader(real_file) as reader:
        links = series_of_files(reader)
    whole = align_counts(links)
    places = tuple(whole.link_ids.index(link.link_id) for link in select_links(links, None))
    return Trial(whole, 22, places, replace(NetworkPlan(), horizons=1, **BASE_ONLY))


@pytest.fixture(scope="module")
def result(trial):
    return train_network(trial.training, trial.plan)


def errors(trial, expected):
    return np.array([figure["rmse"] for figure in trial.figures(expected)])


def test_real_links_are_ahead_of_their_profiles_and_of_ridge(trial, result):
    ours = errors(trial, forecast_test_slots(trial, result, corrected=False)[:, :, 0])
    calendar, test_start = trial.whole.calendar, trial.test_start
    profile_counts = np.full(trial.actual.shape, np.nan)
    for link in trial.scored:
        training = (
            trial.training.counts[link],
            calendar.weekday[:test_start],
            calendar.slot_of_day[:test_start],
            calendar.slots_per_day,
        )
        profile_counts[link] = Profile.learn(*training).at(
            calendar.weekday[test_start:], calendar.slot_of_day[test_start:]
        )
    assert (ours < errors(trial, profile_counts)).mean() >= 0.95
    ridge = errors(trial, ridge_per_link(training_rows(trial), evaluation_rows(trial)))
    assert (ours < ridge).mean() > 2 / 3
    assert np.exp(np.mean(np.log(ours / ridge))) < 1.0


def test_fresh_profiles_help(trial, result):
    frozen = errors(trial, forecast_test_slots(trial, result, corrected=False)[:, :, 0])
    fresh = errors(trial, refreshed_nightly(trial, result)[:, :, 0])
    assert np.exp(np.mean(np.log(fresh / frozen))) < 1.0


def test_a_link_with_three_days_is_well_below_its_own_profile(trial):
    assert young_links(trial, 3) < 0.9


def test_every_scored_link_is_in_one_group(trial):
    members = [place for group in groups_of(trial).values() for place in group]
    assert sorted(members) == list(range(len(trial.scored)))


def test_lightgbm_has_a_fair_choice():
    assert len(SETTINGS) >= 20
    assert len({tuple(sorted(setting.items())) for setting in SETTINGS}) == len(SETTINGS)
