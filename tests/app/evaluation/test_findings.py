import json
from copy import deepcopy
from typing import Any

import pytest

from app.evaluation.findings import verdict
from app.evaluation.tables import Numbers

OVERFITS = "gives intervals that are too narrow"
STRAYED = "strayed further than those it was learnt from"
ONE_METRIC = "part of what it learnt holds for the training days alone"


def words(report: dict[str, Any], *, coverage=(0.9,) * 4, protocol="paper", train_wins=(0, 0, 0, 2)) -> str:
    changed = deepcopy(report) | {"protocol": protocol}
    for method, share, wins in zip(changed["summary"]["methods"][:4], coverage, train_wins, strict=True):
        method["mean"]["test"]["coverage"] = share
        method["wins"]["train"]["rmse"] = wins
        method["wins"]["test"]["rmse"] = 2 if method["method"] == "KR_SML" else 0
    return " ".join(verdict(Numbers(changed)))


@pytest.fixture
def report(city_report) -> dict[str, Any]:
    return json.loads((city_report / "report.json").read_text())


def test_an_interval_that_holds_what_it_is_meant_to_needs_no_explanation(report):
    text = words(report)
    assert OVERFITS not in text
    assert STRAYED not in text


def test_only_a_method_that_learns_under_the_paper_fits_too_closely(report):
    assert OVERFITS in words(report, coverage=(0.9, 0.9, 0.6, 0.9))
    for text in (
        words(report, coverage=(0.6, 0.9, 0.9, 0.9)),
        words(report, coverage=(0.9, 0.9, 0.6, 0.9), protocol="product"),
    ):
        assert OVERFITS not in text
        assert text.count(STRAYED) == 1


def test_kr_sml_is_held_to_the_same_rule(report):
    assert words(report, coverage=(0.9, 0.9, 0.9, 0.6)).count(STRAYED) == 1
    assert words(report, coverage=(0.6, 0.9, 0.9, 0.6)).count(STRAYED) == 1
    assert words(report, coverage=(0.5, 0.9, 0.9, 0.6)).count(STRAYED) == 2
    assert OVERFITS not in words(report, coverage=(None,) * 4)


def test_plain_kr_has_learnt_nothing_that_could_fail_to_hold(report):
    assert ONE_METRIC in words(report, train_wins=(0, 0, 2, 0))
    text = words(report, train_wins=(2, 0, 0, 0))
    assert ONE_METRIC not in text
    assert "its place on the training days does not carry over" in text
