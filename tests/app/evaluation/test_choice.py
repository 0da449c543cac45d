import numpy as np
import pytest

from app.evaluation.choice import choose
from tests.support.evaluation import PLAN, steady_link, with_counts

LINKS = {name: steady_link(name) for name in ("Gb", "Ba", "Hi", "Cf", "Fe")}


def test_takes_all_in_order():
    choice = choose(LINKS, PLAN)
    assert [link.link_id for link in choice.links] == ["Ba", "Cf", "Fe", "Gb", "Hi"]
    assert choice.left_out == choice.notes == []


def test_takes_those_named_once():
    assert [link.link_id for link in choose(LINKS, PLAN, names="Hi, Ba,,Hi").links] == ["Hi", "Ba"]


def test_unknown_links_are_refused_and_the_known_listed():
    with pytest.raises(ValueError, match="no link Xx, Yy in the files; there are Ba, Cf, Fe, Gb, Hi"):
        choose(LINKS, PLAN, names="Xx,Ba,Yy")
    many = {f"L{n:03}": steady_link(days=1) for n in range(50)}
    with pytest.raises(ValueError, match=r"L000, .*L011 and 38 more$"):
        choose(many, PLAN, names="Xx")


def test_a_sample_depends_on_its_seed_alone():
    drawn = [[link.link_id for link in choose(LINKS, PLAN, sample=2, seed=seed).links] for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len({tuple(names) for names in drawn}) > 1
    assert all(names == sorted(names) for names in drawn)


def test_a_sample_is_drawn_among_links_that_can_be_evaluated():
    dead = steady_link("Aa").counts.copy()
    dead[96 : 3 * 96] = np.nan
    odd = {"Aa": with_counts(steady_link("Aa"), dead), "Zz": with_counts(steady_link("Zz"), np.zeros(960))}
    choice = choose(LINKS | odd, PLAN, sample=5)
    assert [link.link_id for link in choice.links] == ["Ba", "Cf", "Fe", "Gb", "Hi"]
    assert [(link.link_id, link.reason[:18]) for link in choice.left_out] == [
        ("Aa", "it has counts on 6"),
        ("Zz", "every count of the"),
    ]


def test_links_with_missing_days_are_kept_and_named():
    counts = steady_link().counts.copy()
    counts[96:192] = np.nan
    choice = choose(LINKS | {"Ba": with_counts(steady_link("Ba"), counts)}, PLAN)
    assert [link.link_id for link in choice.links] == ["Ba", "Cf", "Fe", "Gb", "Hi"]
    assert choice.notes == ["links with days without a count are kept (how many days): Ba (1)"]


def test_a_sample_of_more_than_there_are_takes_all_and_says_so():
    choice = choose(LINKS, PLAN, sample=9)
    assert len(choice.links) == 5
    assert choice.notes == ["a sample of 9 was asked for; 5 links can be evaluated, and all were taken"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sample": 0}, "sample=0 is refused"),
        ({"sample": 1, "seed": -1}, "seed=-1 is refused"),
        ({"sample": 1, "names": "Ba"}, "exclude each other"),
        ({"names": " , "}, "links=' , ' is refused"),
    ],
)
def test_what_cannot_be_chosen_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        choose(LINKS, PLAN, **asked)
