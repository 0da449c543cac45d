from datetime import date

import pytest

from app.evaluation.plan import METHODS, EvaluationPlan
from model.link_model.training_plan import TrainingPlan


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_days", 0),
        ("train_days", 6),
        ("train_days", 10**9),
        ("test_days", 0),
        ("test_days", -3),
        ("neighbors", 0),
        ("lags", 0),
        ("protocol", "papre"),
        ("links", " , "),
        ("sample", 0),
        ("seed", -1),
    ],
)
def test_what_cannot_be_run_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"{field}='?{value}"):
        EvaluationPlan(**{field: value})


def test_links_are_named_or_drawn():
    with pytest.raises(ValueError, match="exclude each other"):
        EvaluationPlan(sample=1, links="Ba")


@pytest.mark.parametrize(("train_days", "held_out"), [(7, 2), (10, 3), (20, 6), (21, 7), (22, 7), (60, 7)])
def test_a_short_span_holds_out_a_third_of_it_at_most(train_days, held_out):
    plan = EvaluationPlan(train_days=train_days)
    assert plan.held_out_days == plan.training_plan("KR_SML").held_out_days == held_out
    assert plan.held_out_reduced == (held_out < TrainingPlan().held_out_days)


def test_the_paper_protocol_sets_neighbours_of_all_but_kr_sml():
    plan = EvaluationPlan(first_day=date(2006, 10, 1))
    assert [plan.neighbors_of(method) for method in METHODS] == [8, 8, 8, TrainingPlan().n_neighbors]
    assert [plan.under_the_paper(method) for method in METHODS] == [True, True, True, False]
    more = EvaluationPlan(neighbors=12)
    assert [more.neighbors_of(method) for method in METHODS] == [12, 12, 12, TrainingPlan().n_neighbors]


def test_the_product_protocol_trains_all_four_alike():
    assert {EvaluationPlan(protocol="product").neighbors_of(method) for method in METHODS} == {20}
    plan = EvaluationPlan(protocol="product", neighbors=12, lags=9)
    assert [plan.training_plan(method).n_neighbors for method in METHODS] == [12] * 4
    assert [plan.training_plan(method).algorithm for method in METHODS] == list(METHODS)
    assert plan.training_plan("KR").lags == 9
    assert not any(plan.under_the_paper(method) for method in METHODS)
