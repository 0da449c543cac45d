from dataclasses import replace

import numpy as np
import pytest

from app.evaluation.measures import best_of, measure, summarise
from app.evaluation.protocol import SlotForecasts
from app.evaluation.report import LinkResult, NotEvaluated


def test_every_figure_of_a_small_example():
    actual = np.array([10.0, 20.0, 0.0, np.nan, 30.0])
    forecasts = SlotForecasts(
        np.array([12.0, 16.0, 0.0, 5.0, 33.0]), np.zeros(5), np.array([20.0, 18.0, 0.0, 9.0, 40.0])
    )
    profile, last_week = actual + 4.0, np.array([np.nan, 14.0, 0.0, 1.0, 36.0])
    got = measure(actual, forecasts, profile, last_week, 15)
    assert got.rmse == pytest.approx(np.sqrt((4 + 16 + 0 + 9) / 4))
    assert got.mae == pytest.approx(9 / 4)
    assert got.bias == pytest.approx(1 / 4)
    assert got.mare == pytest.approx((0.2 + 0.2 + 0.1) / 3)
    assert got.wape == pytest.approx(9 / 60)
    assert got.geh_pass_share == 1.0
    assert got.mean_geh == pytest.approx(np.mean([np.sqrt(8 * e * e / s) for e, s in ((2, 22), (4, 36), (3, 63))]))
    assert got.coverage == pytest.approx(3 / 4)
    assert got.interval_width == pytest.approx((20 + 18 + 0 + 40) / 4)
    assert got.skill_profile == pytest.approx(1 - np.sqrt(29 / 4) / 4)
    assert got.skill_last_week == pytest.approx(1 - np.sqrt(25 / 3) / np.sqrt(72 / 3))
    assert (got.n_used, got.n_missing, got.n_below_floor, got.n_without_flow, got.n_last_week) == (4, 1, 1, 1, 3)


def test_what_is_undefined_is_none():
    zeros = np.zeros(3)
    got = measure(zeros, SlotForecasts(zeros, zeros, zeros), zeros, np.full(3, np.nan), 15)
    assert (got.rmse, got.coverage, got.interval_width) == (0.0, 1.0, 0.0)
    assert [got.mare, got.wape, got.geh_pass_share, got.mean_geh] == [None] * 4
    assert [got.skill_profile, got.skill_last_week] == [None] * 2
    assert (got.n_used, got.n_below_floor, got.n_without_flow) == (3, 3, 3)


@pytest.mark.parametrize(
    ("measure", "values", "best"),
    [
        ("rmse", [3.0, 2.0, None, 4.0], [False, True, False, False]),
        ("skill_profile", [-0.5, 0.1, 0.2, None], [False, False, True, False]),
        ("coverage", [0.95, 1.0, 0.8, 0.88], [False, False, False, True]),
        ("bias", [-0.1, 3.0, 0.2, None], [True, False, False, False]),
        ("mare", [0.2, 0.2, 0.3, 0.4], [True, True, False, False]),
        ("mare", [None] * 4, [False] * 4),
        ("interval_width", [1.0, 2.0, 3.0, 4.0], [False] * 4),
    ],
)
def test_marks_the_best_of_a_row(measure, values, best):
    assert best_of(values, measure, 0.9) == best


# A picture is drawn for the link; the first one of a machine lists its fonts in a process.
@pytest.fixture(scope="module")
def result(odd_link) -> LinkResult:
    return odd_link.result


def with_test_rmse(result: LinkResult, *errors: float | None) -> LinkResult:
    missing = (None, None, None)  # of the profile, NETWORK and best
    methods = [
        replace(method, test=replace(method.test, rmse=error, geh_pass_share=share))
        for method, error, share in zip(
            result.methods, (*errors, *missing), (0.84, 0.85, None, 1.0, *missing), strict=True
        )
    ]
    return replace(result, methods=methods)


@pytest.mark.journey
def test_counts_wins_and_takes_geometric_means(result):
    links = [with_test_rmse(result, 8, 4, 6, 2), with_test_rmse(result, 2, 4, 6, 8)]
    summary = summarise(links, [NotEvaluated("Zz", "no count")], 0.9)
    assert (summary.n_links, summary.n_not_evaluated) == (2, 1)
    assert summary.n_scored == 2 * result.methods[3].test.n_used
    assert [method.wins["test"]["rmse"] for method in summary.methods] == [1, 0, 0, 1, 0, 0, 0]
    assert summary.methods[0].geometric_mean["test"]["rmse"] == pytest.approx(4.0)
    assert summary.methods[3].test_rmse_to_kr == pytest.approx(1.0)
    assert summary.methods[0].mean["test"]["rmse"] == pytest.approx(5.0)
    assert [method.geh_links_passed for method in summary.methods] == [0, 2, 0, 2, 0, 0, 0]
    assert set(summary.ranking[:3]) == {"KR", "KR_PCA", "KR_SML"}
    assert summary.ranking[3] == "MLKR"


@pytest.mark.journey
def test_a_link_without_every_methods_figure_is_in_no_geometric_mean(result):
    links = [with_test_rmse(result, 8, 4, 6, 2), with_test_rmse(result, 2, 0, 6, 8)]
    assert summarise(links, [], 0.9).methods[0].geometric_mean["test"]["rmse"] == pytest.approx(8.0)
    none = summarise([with_test_rmse(result, None, None, None, None)], [], 0.9)
    assert none.methods[0].geometric_mean["test"]["rmse"] is None
    assert none.ranking == []
    assert none.methods[3].test_rmse_to_kr is None
    assert none.methods[0].mean["test"]["rmse"] is None
