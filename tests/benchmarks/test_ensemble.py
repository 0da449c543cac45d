import json

import numpy as np
import pytest

from app.demo.city import sample_city, write_csv
from benchmarks.accuracy import main
from benchmarks.ensemble import Experts, aggregate, nightly_profiles, to_profile
from benchmarks.ensemble_report import DISTURBED, Limit, disturbed_limits, limits
from benchmarks.network_trial import Trial
from benchmarks.pems_lane import read_lane
from model.aggregation.intervals import LEVELS, IntervalFactors
from model.aggregation.online import Regrets
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkCalendar, NetworkSeries


def forecasts(rng, n_slots=120, horizons=3):
    """Return experts' forecasts of two links, (2, n_slots, horizons, 4), and counts, some of them missing."""
    counts = rng.poisson(50, (2, n_slots)).astype(float)
    counts[rng.random(counts.shape) < 0.1] = np.nan
    return rng.normal(50, 8, (2, n_slots, horizons, 4)), counts


def bands(rng, horizons=3):
    return [Bands.learn(rng.normal(50, 5, (200, horizons)), rng.normal(50, 9, (200, horizons))) for _ in range(2)]


def test_each_horizon_is_aggregated_when_the_count_of_its_slot_is_known(rng):
    expected, actual = forecasts(rng)
    of_bands = bands(rng)
    found = aggregate(expected, actual, of_bands)
    for link in range(2):
        for h in range(3):
            regrets, factors, issued = Regrets.none(4), IntervalFactors.start(), []
            for slot in range(expected.shape[1]):
                if slot > h:
                    count, past = actual[link, slot - 1], issued[slot - 1 - h]
                    factors = factors.after(*past, count)
                    regrets = regrets.after(expected[link, slot - 1 - h, h], count)
                one = regrets.aggregate(expected[link, slot, h])
                ends = [end[0, h] for end in of_bands[link].around(np.full((1, 3), one.expected))]
                issued.append((one.expected, one.expected - ends[0], ends[1] - one.expected))
                assert found.expected[link, slot, h] == pytest.approx(float(one.expected))
                np.testing.assert_allclose(found.weights[link, slot, h], one.weights)
                lower, upper = factors.around(*issued[-1], 0.8)
                index = LEVELS.index(0.8)
                assert found.lower[index, link, slot, h] == pytest.approx(float(lower))
                assert found.upper[index, link, slot, h] == pytest.approx(float(upper))


def test_no_later_count_is_used(rng):
    expected, actual = forecasts(rng)
    of_bands = bands(rng)
    changed = actual.copy()
    changed[:, 60:] += 30.0
    one, other = aggregate(expected, actual, of_bands), aggregate(expected, changed, of_bands)
    np.testing.assert_array_equal(one.expected[:, :61], other.expected[:, :61])
    np.testing.assert_array_equal(one.upper[:, :, :61], other.upper[:, :, :61])
    assert (one.expected[:, 61:] != other.expected[:, 61:]).any()


@pytest.fixture
def trial(rng):
    """Return a network of two links with twelve days of two-hour slots."""
    days = np.repeat(np.arange(12), 12)
    calendar = NetworkCalendar(days % 7, np.tile(np.arange(12), 12), days, 12)
    counts = rng.poisson(40, (2, 144)).astype(float)
    whole = NetworkSeries(("a", "b"), counts, calendar, np.array([-1, -1]), ((), ()))
    return Trial(whole, 9, (0, 1), NetworkPlan())


def test_profiles_are_those_of_the_days_before(trial):
    profile, recent = nightly_profiles(trial, 60)
    calendar = trial.whole.calendar
    for slot in (60, 71, 72, 100):
        known = slot // 12 * 12
        learnt = Profile.learn(
            trial.whole.counts[1, :known], calendar.weekday[:known], calendar.slot_of_day[:known], 12
        )
        ahead, back = np.arange(slot, slot + 12), np.arange(slot - 4, slot)
        np.testing.assert_array_equal(profile[1, slot - 60], learnt.at(ahead // 12 % 7, ahead % 12))
        np.testing.assert_array_equal(recent[1, slot - 60], learnt.at(back // 12 % 7, back % 12))


def test_horizons_to_a_day_are_compared_with_the_profile(rng):
    actual = rng.uniform(10, 90, (2, 50))
    to_come = np.concatenate([actual, np.full((2, 12), np.nan)], axis=1)
    exact = np.stack([to_come[:, ahead : 50 + ahead] for ahead in range(12)], axis=2)
    profile = np.where(np.isnan(exact), 0.0, exact) + 10.0
    near = exact[:, :, :2, None]
    experts = Experts(0, 20, np.nan_to_num(near), profile, actual, 1.0)
    ratios = to_profile(experts, aggregate(np.nan_to_num(near), actual, [FAR, FAR]), 120.0)
    np.testing.assert_allclose(ratios[:, :2], 0.0, atol=1e-9)
    # The profile is 10 too high, and so is less and less of what fades to it.
    np.testing.assert_allclose(ratios[:, 2:], [1 - 0.5 ** (np.arange(1, 11) * 120 / 60)] * 2)


FAR = Bands(0.9, np.empty((2, 0)), np.full((2, 1), -9.0), np.full((2, 1), 9.0))


def figures(**errors):
    """Return the report of six links, of which two are disturbed, with the same RMSE for each."""
    names = ("ENSEMBLE", "NETWORK", "KR_SML", "profile", "last_count", "scaled_profile")
    rmse = {name: [errors.get(name, 20.0)] * 6 for name in names}
    return {
        "rmse": rmse,
        "groups": {DISTURBED: [0, 3], "other": [1, 2, 4, 5]},
        "coverage": {0.9: [0.9] * 6},
        "to_profile": {"all": [0.95, 1.0]},
        "cost": 0.1,
    }


def failing(checked: list[Limit]) -> list[str]:
    return [limit.name for limit in checked if not limit.holds]


def test_limits_of_calm_links():
    pinned = np.full(6, 10.0)
    assert failing(limits(figures(ENSEMBLE=9.0, NETWORK=9.0), pinned)) == []
    assert failing(limits(figures(ENSEMBLE=9.07, NETWORK=9.0), pinned)) == ["RMSE to pinned KR", "RMSE to NETWORK"]
    worse = figures(ENSEMBLE=9.0, NETWORK=9.0) | {
        "coverage": {0.9: [0.8] * 6},
        "to_profile": {"all": [1.006]},
        "cost": 0.3,
    }
    assert failing(limits(worse, pinned)) == [
        "mean coverage of 90 %",
        "share of links with coverage of at least 85 %",
        "RMSE to the profile, largest of all horizons",
        "CPU time of the aggregation to that of the experts",
    ]
    assert failing(limits(figures(ENSEMBLE=9.0, NETWORK=9.0, profile=8.0), pinned)) == ["ahead of the profile, of 6"]


def test_limits_of_disturbed_links():
    report = figures(ENSEMBLE=9.4, NETWORK=10.0)
    assert failing(disturbed_limits(report)) == []
    report["rmse"]["KR_SML"][0] = report["rmse"]["KR_SML"][3] = 9.5
    report["rmse"]["ENSEMBLE"][1:3] = [11.5, 11.5]
    assert failing(disturbed_limits(report)) == [
        "disturbed links, RMSE to the best expert",
        "other links, RMSE to NETWORK",
    ]


@pytest.mark.journey
def test_disturbed_links_are_measured_apart_and_limits_decide_the_exit(tmp_path, capsys):
    write_csv(sample_city(links=6, days=20), tmp_path / "city.csv")
    arguments = ["--network", "--disturb", "1", "2", "--data", str(tmp_path / "city.csv"), "--train-days", "13"]
    code = main([*arguments, "--jobs", "1", "--json"])
    output = capsys.readouterr().out
    assert "Infinity" not in output
    assert "NaN" not in output
    by_seed = json.loads(output)["disturbed"]
    assert list(by_seed) == ["1", "2"]
    for report in by_seed.values():
        disturbed, others = report["groups"]["disturbed"], report["groups"]["other"]
        assert sorted(disturbed + others) == list(range(len(report["links"])))
        assert 0.8 < np.mean(report["coverage"]["0.9"]) < 1.0
        assert len(report["to_profile"]["all"]) == 96
        assert sum(report["weights"].values()) == pytest.approx(1.0)
        assert set(report["coverage_by_regime"]) == {"in disturbance", "calm"}
    held = [Limit(*limit).holds for report in by_seed.values() for limit in report["limits"]]
    assert code == (0 if all(held) else 1)


def test_disturb_is_refused_without_the_network(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["--disturb", "1"])
    assert refused.value.code == 2
    assert "--disturb is for --network" in capsys.readouterr().err


def test_the_lane_is_read_without_its_missing_days(real_file):
    series, n_training = read_lane(real_file.with_name("pems_lane_2016.csv.gz"))
    assert (len(series) // 288, n_training // 288) == (42, 27)
    assert series.slots_per_day == 288
    assert set(series.weekday.tolist()) == {0, 1, 2, 3, 4}
    np.testing.assert_array_equal(series.slot_of_day.reshape(42, 288), np.tile(np.arange(288), (42, 1)))
    assert not np.isnan(series.counts).any()
