import json

import numpy as np
import pytest

from model.artifacts.artifact import DamagedArtifact, write_artifact
from model.artifacts.link_models import load_model, save_model
from model.link_model.trained_model import ALGORITHMS
from model.link_model.training import ESTIMATORS, NotEnoughCounts, forecast_methods, train
from model.link_model.training_plan import TrainingPlan
from tests.support.link_series import QUICK, SLOTS, link


@pytest.fixture(scope="module")
def trained():
    series = link()
    return series, train(series.head(15 * SLOTS), TrainingPlan(**QUICK))


def test_every_algorithm_has_its_estimator():
    assert set(ESTIMATORS) == set(ALGORITHMS)


class TestTrain:
    def test_forecasts_the_days_to_come_better_than_last_week_did(self, trained):
        series, result = trained
        rows = result.model.window.training_set(series.counts)
        test = rows.positions >= 15 * SLOTS
        expected = result.model.forecast(rows.X[test]).expected[:, 0]
        last_week = series.counts[rows.positions[test] - 7 * SLOTS]
        assert np.mean((expected - rows.y[test]) ** 2) < 0.8 * np.mean((last_week - rows.y[test]) ** 2)

    def test_intervals_hold_about_their_share_of_days_never_seen(self, trained):
        series, result = trained
        rows = result.model.window.training_set(series.counts)
        test = rows.positions >= 15 * SLOTS
        forecasts = result.model.forecast(rows.X[test])
        inside = (forecasts.lower[:, 0] <= rows.y[test]) & (rows.y[test] <= forecasts.upper[:, 0])
        assert 0.8 < inside.mean() < 0.98
        assert (forecasts.lower >= 0).all()

    def test_all_horizons_come_from_the_neighbours_continuations(self, trained):
        series, result = trained
        forecasts = result.model.forecast(series.counts[-12:][::-1][None, :])
        assert forecasts.expected.shape == (1, 4)
        assert np.isfinite(forecasts.expected).all()

    def test_held_out_accuracy_stands_beside_that_of_others_on_the_same_slots(self, trained):
        _, result = trained
        assert set(result.held_out) == {"candidate", "KR", "profile", "last_week"}
        used = {method: figures["rmse"].n_used for method, figures in result.held_out.items()}
        assert set(used.values()) == {4 * SLOTS}
        assert result.held_out["candidate"]["rmse"].value <= result.held_out["KR"]["rmse"].value
        assert 0.8 < result.held_out["candidate"]["coverage"].value <= 1.0

    def test_held_out_forecasts_are_those_that_were_measured(self, trained):
        series, result = trained
        counts = series.counts[11 * SLOTS : 15 * SLOTS]
        errors = counts - result.held_out_expected[:, 0]
        assert result.held_out_expected.shape == (4 * SLOTS, 4)
        assert np.sqrt(np.mean(errors**2)) == pytest.approx(result.held_out["candidate"]["rmse"].value)

    def test_a_held_out_slot_without_a_window_has_no_forecast(self):
        series = link(15)
        series.counts[13 * SLOTS] = np.nan
        expected = train(series, TrainingPlan(**QUICK | {"algorithm": "KR"})).held_out_expected
        gap = 2 * SLOTS  # of the held-out slots
        assert np.isnan(expected[gap : gap + 13]).all()
        assert np.isfinite(np.delete(expected, np.arange(gap, gap + 13), axis=0)).all()

    def test_other_forecasts_are_measured_on_slots_that_all_methods_have(self):
        series, plan = link(15), TrainingPlan(**QUICK | {"algorithm": "KR"})
        exact = series.counts.copy()
        exact[-96:] = np.nan  # silent on the last day
        others = {"exact": exact, "off by five": series.counts + 5.0, "mute": np.full(len(series), np.nan)}
        result = train(series, plan, others=others)
        figures = result.held_out
        assert {measures["rmse"].n_used for method, measures in figures.items() if method != "mute"} == {3 * SLOTS}
        assert figures["exact"]["rmse"].value == 0.0
        assert figures["off by five"]["rmse"].value == pytest.approx(5.0)
        assert figures["mute"]["rmse"] == (None, 0, 0, 4 * SLOTS)

        without = forecast_methods(series, others, plan)
        assert set(without) == set(figures) - {"candidate"}
        for method, forecasts in without.items():
            np.testing.assert_array_equal(forecasts, result.forecasts[method])
        with pytest.raises(NotEnoughCounts, match="can be learnt from"):
            forecast_methods(link(5), {}, plan)

    def test_the_memory_takes_in_the_held_out_days(self, trained):
        _, result = trained
        assert result.model.positions.max() == 15 * SLOTS - 1

    @pytest.mark.parametrize("algorithm", ESTIMATORS)
    def test_every_algorithm_trains_through_the_same_call(self, algorithm):
        result = train(link(15), TrainingPlan(**QUICK | {"algorithm": algorithm}))
        assert result.model.algorithm == algorithm
        assert result.held_out["candidate"]["rmse"].value < result.held_out["last_week"]["rmse"].value

    @pytest.mark.journey
    def test_training_twice_gives_the_same_model(self):
        one, other = (train(link(15), TrainingPlan(**QUICK)) for _ in range(2))
        np.testing.assert_array_equal(one.model.memory.steps, other.model.memory.steps)

    def test_a_dead_detector_is_not_learnt_from(self):
        series = link(15)
        series.counts[5 * SLOTS + 28 : 5 * SLOTS + 76] = 0
        result = train(series, TrainingPlan(**QUICK))
        assert [verdict.name for verdict in result.health.verdicts] == ["dead"]
        dead = set(range(5 * SLOTS + 28, 5 * SLOTS + 76 + 12))
        assert not dead & set(result.model.positions.tolist())

    def test_held_out_counts_are_scored_whether_suspect_or_not(self):
        series = link(15)
        sound = train(series, TrainingPlan(**QUICK | {"algorithm": "KR"}))
        series.counts[12 * SLOTS + 30 : 12 * SLOTS + 76] = 0  # dead, on a held-out day
        dead = train(series, TrainingPlan(**QUICK | {"algorithm": "KR"}))
        assert dead.health.suspect.sum() == 46
        for result in (sound, dead):
            assert result.held_out["candidate"]["rmse"].n_used == 4 * SLOTS
        assert dead.held_out["profile"]["rmse"].value > 2 * sound.held_out["profile"]["rmse"].value

    def test_slots_that_one_method_cannot_forecast_are_scored_for_none(self):
        series = link(15)
        series.counts[6 * SLOTS : 7 * SLOTS] = np.nan  # a week before a held-out day
        figures = train(series, TrainingPlan(**QUICK | {"algorithm": "KR"})).held_out
        assert {measures["rmse"].n_used for measures in figures.values()} == {3 * SLOTS}
        assert figures["candidate"]["rmse"].n_missing == SLOTS

    def test_reported_coverage_is_not_measured_on_its_own_errors(self):
        shares = [train(link(15, seed), TrainingPlan(**QUICK | {"algorithm": "KR"})).held_out for seed in range(4)]
        values = [figures["candidate"]["coverage"].value for figures in shares]
        assert len(set(values)) > 1
        assert 0.8 < np.mean(values) < 0.97

    def test_too_few_counts_are_refused_with_their_number(self):
        with pytest.raises(NotEnoughCounts, match="counts can be learnt from; at least 672 are needed"):
            train(link(5), TrainingPlan(**QUICK))

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"algorithm": "LSTM"}, "algorithm='LSTM' is refused; it must be one of KR, KR_PCA, MLKR, KR_SML"),
            ({"n_neighbors": 0}, "n_neighbors=0 is refused"),
            ({"lags": 0}, "lags=0 is refused"),
            ({"level": 1.5}, r"level=1\.5 is refused"),
            ({"bandwidth": 0}, "bandwidth=0 is refused"),
            ({"exclusion_days": -1}, "exclusion_days=-1 is refused"),
            ({"held_out_days": 1.5}, r"held_out_days=1\.5 is refused"),
            ({"mu": (-1.0,)}, r"mu=-1\.0 is refused"),
            ({"horizons": 0}, "horizons=0 is refused"),
            ({"held_out_days": 0}, "held_out_days=0 is refused"),
        ],
    )
    def test_refuses_other_plans(self, parameters, message):
        with pytest.raises(ValueError, match=message):
            TrainingPlan(**parameters)


class TestStoredModel:
    def test_a_loaded_model_forecasts_bit_for_bit_as_the_saved_one(self, trained, tmp_path):
        series, result = trained
        fingerprint = save_model(tmp_path / "Gb", result.model, {"link_id": "Gb"})
        model, about = load_model(tmp_path / "Gb", fingerprint=fingerprint)
        assert about == {"link_id": "Gb"}
        windows = model.window.training_set(series.counts).X[-200:]
        for loaded, saved in zip(model.forecast(windows), result.model.forecast(windows), strict=True):
            np.testing.assert_array_equal(loaded, saved)

    def test_the_memory_is_mapped_not_copied(self, trained, tmp_path):
        save_model(tmp_path / "Gb", trained[1].model, {})
        assert isinstance(load_model(tmp_path / "Gb")[0].memory.steps.base, np.memmap)

    @pytest.mark.parametrize(
        "damage",
        [
            {"lags": []},
            {"lags": [1, 2]},
            {"scale": 0},
            {"scale": "1"},
            {"center": None},
            {"n_neighbors": 0},
            {"about": 3},
        ],
    )
    def test_contents_that_make_no_model_are_refused(self, trained, tmp_path, damage):
        save_model(tmp_path / "Gb", trained[1].model, {})
        manifest = json.loads((tmp_path / "Gb" / "manifest.json").read_text())
        manifest["contents"] |= damage
        (tmp_path / "Gb" / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(DamagedArtifact):
            load_model(tmp_path / "Gb")

    @pytest.mark.parametrize("shape", [(12,), (1, 11), (0, 12)])
    def test_windows_of_another_shape_are_refused(self, trained, shape):
        with pytest.raises(ValueError, match="windows have shape"):
            trained[1].model.forecast(np.ones(shape))

    def test_a_gap_is_no_forecast(self, trained):
        with pytest.raises(ValueError, match="windows hold a gap"):
            trained[1].model.forecast(np.full((1, 12), np.nan))

    def test_an_artifact_of_another_kind_is_refused(self, tmp_path):
        write_artifact(tmp_path / "other", {"kind": "poem"}, {"words": np.arange(3)})
        with pytest.raises(DamagedArtifact, match="something other than a link's model"):
            load_model(tmp_path / "other")
