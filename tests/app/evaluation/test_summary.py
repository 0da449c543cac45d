from dataclasses import replace

import pytest

from app.evaluation.report import LinkResult, NotEvaluated
from app.evaluation.summary import best_of, summarise

pytestmark = pytest.mark.journey  # a picture for each link; the first one of a machine lists its fonts in a process


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


def test_a_link_without_every_methods_figure_is_in_no_geometric_mean(result):
    links = [with_test_rmse(result, 8, 4, 6, 2), with_test_rmse(result, 2, 0, 6, 8)]
    assert summarise(links, [], 0.9).methods[0].geometric_mean["test"]["rmse"] == pytest.approx(8.0)
    none = summarise([with_test_rmse(result, None, None, None, None)], [], 0.9)
    assert none.methods[0].geometric_mean["test"]["rmse"] is None
    assert none.ranking == []
    assert none.methods[3].test_rmse_to_kr is None
    assert none.methods[0].mean["test"]["rmse"] is None
