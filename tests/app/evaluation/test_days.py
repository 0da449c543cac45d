from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from app.evaluation.days import cut_out, first_whole_day
from app.evaluation.plan import EvaluationPlan
from model.link_model.training import NotEnoughCounts
from tests.support.evaluation import PLAN, steady_link, with_counts


def test_takes_the_first_days_of_a_longer_link():
    days = cut_out(steady_link(days=14), PLAN)
    assert days.first_day == date(2025, 9, 1)
    assert (days.cut, len(days.link)) == (8 * 96, 10 * 96)


def test_begins_at_the_first_midnight():
    link = steady_link(days=11)
    late = replace(link, first=link.first + 5, counts=link.counts[5:], suspect=link.suspect[5:])
    assert first_whole_day(link) == date(2025, 9, 1)
    assert first_whole_day(late) == date(2025, 9, 2)
    assert cut_out(late, PLAN).link.first == link.first + 96


def test_days_are_the_links_own_and_have_its_clocks_hours():
    # The clocks of Berlin went back on 26 October 2025: that day has 100 slots.
    link = steady_link(days=12, start=date(2025, 10, 20), zone="Europe/Berlin")
    days = cut_out(link, PLAN)
    assert (days.cut, len(days.link)) == (8 * 96 + 4, 10 * 96 + 4)


def test_another_first_day_may_be_asked_for():
    link = steady_link(days=14)
    days = cut_out(link, replace(PLAN, first_day=date(2025, 9, 3)))
    assert days.link.first == link.first + 2 * 96
    np.testing.assert_array_equal(days.link.counts, link.counts[2 * 96 : 12 * 96])


def test_a_first_day_that_began_before_the_link_is_padded_with_gaps():
    link = steady_link(days=10)
    late = replace(link, first=link.first + 5, counts=link.counts[5:], suspect=link.suspect[5:])
    days = cut_out(late, replace(PLAN, first_day=date(2025, 9, 1)))
    assert np.isnan(days.link.counts[:5]).all()
    np.testing.assert_array_equal(days.link.counts[5:], link.counts[5:])


def without_days(*days):
    counts = steady_link().counts.copy()
    for day in days:
        counts[day * 96 : (day + 1) * 96] = np.nan
    return with_counts(steady_link(), counts)


def test_a_link_with_a_missing_day_is_kept():
    days = cut_out(without_days(3, 8), PLAN)
    assert days.empty == [date(2025, 9, 4), date(2025, 9, 9)]
    assert len(days.link) == 10 * 96
    assert len(days.learnt) == days.cut == 8 * 96


def test_too_few_days_are_said():
    with pytest.raises(NotEnoughCounts, match="on 6 of the 8 training days from 2025-09-01 on; at least 7"):
        cut_out(without_days(2, 3), PLAN)
    with pytest.raises(NotEnoughCounts, match="no count on the 2 test days from 2025-09-09 on"):
        cut_out(steady_link(days=8), PLAN)


@pytest.mark.parametrize("first_day", [date(1970, 1, 2), date(9999, 12, 30)])
def test_days_far_from_the_links_are_said(first_day):
    with pytest.raises(NotEnoughCounts, match=f"{first_day.year}"):
        cut_out(steady_link(), replace(PLAN, first_day=first_day))


def test_a_link_that_never_varies_has_nothing_to_learn():
    with pytest.raises(NotEnoughCounts, match="every count of the training days is 0"):
        cut_out(with_counts(steady_link(), np.zeros(960)), PLAN)


def test_default_plan_is_the_papers_days():
    days = cut_out(steady_link(days=25), EvaluationPlan())
    assert (days.cut, len(days.link)) == (2112, 2400)
