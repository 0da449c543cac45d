from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from app.evaluation.days import DaySplit, choose_links, cut_out, first_whole_day
from app.evaluation.plan import EvaluationPlan
from model.link_model.training import NotEnoughCounts
from tests.support.evaluation import PLAN, steady_link, with_counts

LINKS = {name: steady_link(name) for name in ("Gb", "Ba", "Hi", "Cf", "Fe")}


def test_takes_the_first_days_of_a_longer_link():
    split = cut_out(steady_link(days=14), PLAN)
    assert split.first_day == date(2025, 9, 1)
    assert (split.cut, len(split.link)) == (8 * 96, 10 * 96)


def test_begins_at_the_first_midnight():
    link = steady_link(days=11)
    late = replace(link, first=link.first + 5, counts=link.counts[5:], suspect=link.suspect[5:])
    assert first_whole_day(link) == date(2025, 9, 1)
    assert first_whole_day(late) == date(2025, 9, 2)
    assert cut_out(late, PLAN).link.first == link.first + 96


def test_days_are_the_links_own_and_have_its_clocks_hours():
    # The clocks of Berlin went back on 26 October 2025: that day has 100 slots.
    link = steady_link(days=12, start=date(2025, 10, 20), zone="Europe/Berlin")
    split = cut_out(link, PLAN)
    assert (split.cut, len(split.link)) == (8 * 96 + 4, 10 * 96 + 4)


def test_the_first_day_can_be_chosen():
    link = steady_link(days=14)
    split = cut_out(link, replace(PLAN, first_day=date(2025, 9, 3)))
    assert split.link.first == link.first + 2 * 96
    np.testing.assert_array_equal(split.link.counts, link.counts[2 * 96 : 12 * 96])


def test_a_first_day_that_began_before_the_link_is_padded_with_gaps():
    link = steady_link(days=10)
    late = replace(link, first=link.first + 5, counts=link.counts[5:], suspect=link.suspect[5:])
    split = cut_out(late, replace(PLAN, first_day=date(2025, 9, 1)))
    assert np.isnan(split.link.counts[:5]).all()
    np.testing.assert_array_equal(split.link.counts[5:], link.counts[5:])


def without_days(*days):
    counts = steady_link().counts.copy()
    for day in days:
        counts[day * 96 : (day + 1) * 96] = np.nan
    return with_counts(steady_link(), counts)


def test_a_link_with_a_missing_day_is_kept():
    split = cut_out(without_days(3, 8), PLAN)
    assert split.empty_days == (date(2025, 9, 4), date(2025, 9, 9))
    assert len(split.link) == 10 * 96
    assert len(split.training_link) == split.cut == 8 * 96


def test_too_few_days_are_refused():
    with pytest.raises(NotEnoughCounts, match="on 6 of the 8 training days from 2025-09-01 on; at least 7"):
        cut_out(without_days(2, 3), PLAN)
    with pytest.raises(NotEnoughCounts, match="no count on the 2 test days from 2025-09-09 on"):
        cut_out(steady_link(days=8), PLAN)


@pytest.mark.parametrize("first_day", [date(1970, 1, 2), date(9999, 12, 30)])
def test_days_far_from_the_links_are_refused(first_day):
    with pytest.raises(NotEnoughCounts, match=f"{first_day.year}"):
        cut_out(steady_link(), replace(PLAN, first_day=first_day))


def test_a_link_that_never_varies_has_nothing_to_learn():
    with pytest.raises(NotEnoughCounts, match="every count of the training days is 0"):
        cut_out(with_counts(steady_link(), np.zeros(960)), PLAN)


def test_default_plan_is_the_papers_days():
    split = cut_out(steady_link(days=25), EvaluationPlan())
    assert (split.cut, len(split.link)) == (2112, 2400)


class TestChooseLinks:
    def test_takes_all_in_order(self):
        choice = choose_links(LINKS, PLAN)
        assert [link.link_id for link in choice.links] == ["Ba", "Cf", "Fe", "Gb", "Hi"]
        assert choice.left_out == choice.notes == []

    def test_takes_those_named_once(self):
        assert [link.link_id for link in choose_links(LINKS, replace(PLAN, links="Hi, Ba,,Hi")).links] == ["Hi", "Ba"]

    def test_unknown_links_are_refused_and_the_known_listed(self):
        with pytest.raises(ValueError, match="no link Xx, Yy in the files; there are Ba, Cf, Fe, Gb, Hi"):
            choose_links(LINKS, replace(PLAN, links="Xx,Ba,Yy"))
        many = {f"L{n:03}": steady_link(days=1) for n in range(50)}
        with pytest.raises(ValueError, match=r"L000, .*L011 and 38 more$"):
            choose_links(many, replace(PLAN, links="Xx"))

    def test_a_sample_depends_on_its_seed_alone(self):
        drawn = [
            [link.link_id for link in choose_links(LINKS, replace(PLAN, sample=2, seed=seed)).links]
            for seed in (0, 0, 1, 2, 3)
        ]
        assert drawn[0] == drawn[1]
        assert len({tuple(names) for names in drawn}) > 1
        assert all(names == sorted(names) for names in drawn)

    def test_a_sample_is_drawn_among_links_that_can_be_evaluated(self):
        dead = steady_link("Aa").counts.copy()
        dead[96 : 3 * 96] = np.nan
        odd = {"Aa": with_counts(steady_link("Aa"), dead), "Zz": with_counts(steady_link("Zz"), np.zeros(960))}
        choice = choose_links(LINKS | odd, replace(PLAN, sample=5))
        assert [link.link_id for link in choice.links] == ["Ba", "Cf", "Fe", "Gb", "Hi"]
        assert [(link.link_id, link.reason[:18]) for link in choice.left_out] == [
            ("Aa", "it has counts on 6"),
            ("Zz", "every count of the"),
        ]

    def test_links_with_missing_days_are_kept_and_named(self):
        counts = steady_link().counts.copy()
        counts[96:192] = np.nan
        choice = choose_links(LINKS | {"Ba": with_counts(steady_link("Ba"), counts)}, PLAN)
        assert [link.link_id for link in choice.links] == ["Ba", "Cf", "Fe", "Gb", "Hi"]
        assert choice.notes == ["links with days without a count are kept (how many days): Ba (1)"]

    def test_a_sample_larger_than_the_choice_takes_all_with_a_note(self):
        choice = choose_links(LINKS, replace(PLAN, sample=9))
        assert len(choice.links) == 5
        assert choice.notes == ["a sample of 9 was requested; 5 links can be evaluated, and all were taken"]


class TestSpan:
    def test_a_gap_in_a_test_window_is_filled_with_the_profile(self):
        link = steady_link()
        counts = link.counts.copy()
        counts[800] = np.nan
        split = DaySplit(with_counts(link, counts), 8 * 96, 3)
        window = split.windows(np.array([802]))[0]
        np.testing.assert_array_equal(window[[0, 2]], counts[[801, 799]])
        assert window[1] == split.profile[800]
        assert split.profile[800] == pytest.approx(np.mean(link.counts[[800 - 96 * n for n in range(1, 9)]]), abs=6)
        assert len(split.test_slots) == 2 * 96

    def test_training_rows_stop_at_the_test_days(self):
        split = DaySplit(steady_link(), 8 * 96, 12)
        assert split.rows.positions.max() == 8 * 96 - 1
        assert len(split.rows.y) == 8 * 96 - 12

    def test_the_profile_of_a_training_day_has_not_seen_that_day(self):
        link = steady_link()
        counts = link.counts.copy()
        counts[2 * 96 : 3 * 96] += 1000.0
        split = DaySplit(with_counts(link, counts), 8 * 96, 12)
        honest = split.profile_without_own_day()
        assert honest[2 * 96 + 10 : 3 * 96 - 10].max() < 200.0
        assert split.profile[2 * 96 + 10 : 3 * 96 - 10].min() > 100.0
        assert honest[4 * 96 + 10] > 100.0  # the other days have seen it

    def test_last_week_is_filled_too(self):
        link = steady_link()
        counts = link.counts.copy()
        counts[2 * 96 + 5] = np.nan
        split = DaySplit(with_counts(link, counts), 8 * 96, 12)
        assert split.last_week()[9 * 96 + 5] == split.profile[2 * 96 + 5]
        assert split.last_week()[9 * 96 + 6] == counts[2 * 96 + 6]

    def test_no_whole_window_is_refused(self):
        with pytest.raises(NotEnoughCounts, match="0 whole windows of 700 lags"):
            _ = DaySplit(steady_link(), 600, 700).rows
