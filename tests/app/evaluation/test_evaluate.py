import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from app.evaluation.evaluate import Evaluated, evaluate_link, evaluate_links, figure_name
from app.evaluation.report import NotEvaluated
from tests.support.evaluation import PLAN, steady_link, with_counts

pytestmark = pytest.mark.journey  # a picture for each link; the first one of a machine lists its fonts in a process


def test_the_result_has_its_days_and_methods(odd_link):
    result = odd_link.result
    assert (result.train_from, result.train_to) == ("2025-09-01", "2025-09-08")
    assert (result.test_from, result.test_to) == ("2025-09-09", "2025-09-10")
    assert [method.method for method in result.methods] == [
        *("KR", "KR_PCA", "MLKR", "KR_SML", "profile", "NETWORK", "best")
    ]
    assert [method.protocol for method in result.methods] == ["paper"] * 3 + ["product"] * 4
    assert (result.d, result.rank, result.pca_d) == (12, result.methods[3].rank, result.methods[1].rank)


def test_figures_agree_with_the_forecasts_they_are_of(odd_link):
    counts = np.array(odd_link.result.test_slots.counts, dtype=float)
    assert np.isnan(counts).sum() == 4
    for method in odd_link.result.methods[:4]:
        errors = np.array(method.forecasts.expected) - counts
        assert method.test.rmse == pytest.approx(np.sqrt(np.nanmean(errors**2)), abs=1e-2)
        assert (method.test.n_used, method.test.n_missing) == (188, 4)
        assert (method.train.n_used, method.train.n_missing) == (8 * 96 - 12, 12)
    profile = odd_link.result.methods[4]
    assert (profile.test.n_used, profile.train.n_used) == (188, 8 * 96)
    assert profile.test.skill_profile == pytest.approx(0.0, abs=1e-9)


def test_slots_are_in_utc_and_on_the_links_clocks(odd_link):
    slots = odd_link.result.test_slots
    assert slots.slot_starts[0] == "2025-09-08T14:00:00Z"
    assert slots.local_starts[0] == "2025-09-09T00:00"
    assert slots.local_starts[-1] == "2025-09-10T23:45"
    assert len(slots.slot_starts) == len(slots.local_starts) == len(slots.counts) == 192


def test_the_metric_has_a_weight_a_lag_and_no_eigenvalue_beyond_its_rank(odd_link):
    assert [method.metric for method in odd_link.result.methods[4:]] == [None] * 3
    for method in odd_link.result.methods[:4]:
        values = np.array(method.metric.eigenvalues)
        assert len(method.metric.lag_weights) == len(values) == 12
        assert (np.diff(values) <= 0).all()
        assert (values[method.rank :] == 0).all()
        assert sum(method.metric.lag_weights) == pytest.approx(values.sum())
    assert odd_link.result.methods[0].metric.lag_weights == [1.0] * 12


def test_the_result_is_json_without_nan(odd_link):
    json.dumps(asdict(odd_link.result), allow_nan=False)


def test_the_picture_is_a_png(odd_link):
    assert odd_link.picture.startswith(b"\x89PNG\r\n")


def test_a_links_failure_is_its_own_reason_whatever_it_is(monkeypatch):
    short, dead = steady_link("Aa", days=4), with_counts(steady_link("Zz"), np.zeros(960))
    outcomes = {o.link_id: o for o in evaluate_links([short, dead], PLAN, {}, jobs=1) if isinstance(o, NotEvaluated)}
    assert outcomes["Aa"].reason.startswith("it has counts on 4 of the 8 training days")
    assert outcomes["Zz"].reason.startswith("every count of the training days is 0")
    monkeypatch.setattr("app.evaluation.evaluate.run", lambda *_: 1 / 0)
    outcome = evaluate_link(steady_link(), PLAN)
    assert outcome == NotEvaluated("Ba", "ZeroDivisionError: division by zero")


def test_a_link_that_stands_still_on_the_test_days_is_evaluated():
    counts = steady_link().counts.copy()
    counts[8 * 96 :] = 0.0
    done = evaluate_link(with_counts(steady_link(), counts), replace(PLAN, lags=4))
    assert isinstance(done, Evaluated)
    assert done.result.methods[3].test.mare is None
    assert done.result.methods[3].test.n_below_floor == 192


def test_lags_longer_than_the_training_days_are_a_reason():
    outcome = evaluate_link(steady_link(), replace(PLAN, lags=800))
    assert isinstance(outcome, NotEvaluated)
    assert "0 whole windows of 800 lags" in outcome.reason


@pytest.mark.parametrize(
    ("link_id", "name"),
    [
        ("0970-7", "figure4-0970-7.png"),
        ("a.b:c", "figure4-a.b%3Ac.png"),
        ("..", "figure4-...png"),
        ("../x", "figure4-..%2Fx.png"),
    ],
)
def test_a_picture_has_a_name_that_any_folder_can_hold(link_id, name):
    assert figure_name(link_id) == name
