"""NETWORK and `best` in an evaluation: learnt from training days alone, by the product's own training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.evaluation.days import cut_out
from app.evaluation.network_methods import learn_networks, run_best, run_network
from app.evaluation.protocol import run, run_profile
from tests.support.evaluation import PLAN, city_links, steady_link, with_counts

pytestmark = pytest.mark.journey  # networks are trained


def evaluated(links, folder: Path):
    networks, _ = learn_networks(links, PLAN, {}, folder)
    split, network = cut_out(links[0], PLAN), networks[links[0].link_id]
    profile = run_profile(split, 0.9)
    return run_network(network, split), run_best(network, split, PLAN, profile), profile, split


@pytest.fixture(scope="module")
def as_counted(tmp_path_factory):
    return evaluated(city_links(2), tmp_path_factory.mktemp("as counted"))


def test_nothing_of_the_test_days_is_learnt_or_chosen_by(as_counted, tmp_path):
    links = city_links(2)
    network, best, _, split = as_counted
    changed = []
    for link in links:
        counts = link.counts.copy()
        counts[split.cut + 1 :] += 500.0
        changed.append(with_counts(link, counts))
    other, other_best, _, _ = evaluated(changed, tmp_path)
    assert best.chosen == other_best.chosen
    # The second test slot is the first whose past differs from what the training days have.
    for ours, theirs in ((network, other), (best, other_best)):
        np.testing.assert_array_equal(ours.test.expected[:2], theirs.test.expected[:2])
        assert len(ours.test.expected) == 2 * 96
        assert not np.isnan(ours.test.expected).any()


def test_best_is_what_it_chose(as_counted):
    network, best, _, split = as_counted
    alone = [network.test.expected, run("KR_SML", split, PLAN).test.expected]
    counts = split.link.counts[split.cut :]
    slots = np.arange(split.cut, len(split.link))
    series = split.series
    recent = np.array([series.counts[slot - 4 : slot] for slot in slots])
    assert best.chosen in ("NETWORK", "KR_SML", "KR_SML and NETWORK")
    # A weighted mean of experts lies between the smallest and the largest of them.
    experts = [*alone, recent[:, -1]]
    inside = (best.test.expected >= np.min(experts, axis=0) * 0.2) & (best.test.expected <= np.max(experts, axis=0) * 3)
    assert inside.all()
    errors = [float(np.sqrt(np.mean((expected - counts) ** 2))) for expected in (best.test.expected, *alone)]
    assert errors[0] < 1.1 * min(errors[1:])
    assert (best.test.lower <= best.test.expected).all()
    assert 0.8 < np.mean((counts >= best.test.lower) & (counts <= best.test.upper)) <= 1.0


def test_one_link_has_no_network_and_there_is_a_note(tmp_path):
    link = city_links(1)[0]
    _, notes = learn_networks([link], PLAN, {}, tmp_path)
    assert notes == [
        f"NETWORK is left out for {link.link_id}: a network of 1 link cannot be trained; at least 2 links need counts"
    ]
    network, best, _, _ = evaluated([link], tmp_path / "again")
    assert np.isnan(network.test.expected).all()
    assert best.chosen in ("KR_SML", "none", "profile")


def test_links_with_other_days_are_in_another_network(tmp_path):
    links = [steady_link("Aa"), replace(steady_link("Bb"), first=steady_link().first + 96)]
    _, notes = learn_networks(links, PLAN, {}, tmp_path)
    assert [note.split(":")[0] for note in notes] == ["NETWORK is left out for Aa", "NETWORK is left out for Bb"]


def test_the_report_has_the_choices(city_json):
    chosen = [link["methods"][6]["chosen"] for link in city_json["links"]]
    assert len(chosen) == 2
    assert set(chosen) <= {"NETWORK", "KR_SML", "KR_SML and NETWORK", "none", "profile"}
    assert sorted(city_json["summary"]["ranking"]) == sorted(
        method["method"] for method in city_json["links"][0]["methods"]
    )
    assert city_json["notes"] == []
