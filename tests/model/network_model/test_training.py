from dataclasses import replace

import numpy as np
import pytest

from model.link_model.training import NotEnoughCounts
from model.network_model import training
from model.network_model.context import ContextParts
from model.network_model.days import NetworkDays, counts_from
from model.network_model.network import context_source
from model.network_model.plan import NetworkPlan
from model.network_model.training import refresh_network, train_network
from tests.support.networks import QUICK, synthetic_network

pytestmark = pytest.mark.journey

SERIES = synthetic_network(days=20)
SMALL = replace(QUICK, metric_rows=100, network_rows=300, max_iter=1, horizons=1)  # where it matters little how well


@pytest.fixture(scope="module")
def result():
    return train_network(SERIES, QUICK)


def errors(expected, series, first):
    observed = counts_from(series, first, expected.shape[2])
    return np.sqrt(np.nanmean((expected - observed) ** 2, axis=1))


def test_the_base_is_ahead_of_the_profile_at_every_horizon(result):
    held_out = result.held_out
    assert held_out.first == 16 * 24
    base, profile_counts = (
        errors(expected, SERIES, held_out.first).mean(axis=0) for expected in (held_out.base, held_out.profile)
    )
    assert base[0] < 0.97 * profile_counts[0]
    assert (base <= 1.005 * profile_counts).all()


def test_memories_are_used_only_where_they_help(result):
    held_out = result.held_out
    network, base = (errors(expected, SERIES, held_out.first)[:, 0] for expected in (held_out.network, held_out.base))
    assert (network <= base * 1.005).all()
    unused = [i for i, model in enumerate(result.models) if not model.shares.any()]
    assert np.array_equal(held_out.network[unused], held_out.base[unused])


def test_held_out_counts_do_not_influence_their_forecasts(monkeypatch):
    monkeypatch.setattr(training, "MIN_ALONE_GAIN", np.inf)
    monkeypatch.setattr(training, "BASE_SHARES", (1.0,))
    plan = replace(
        QUICK, ridge=(3000.0,), own_ridge=(1e15,), horizons=1
    )  # what is chosen by those days is not at stake
    changed, noon = SERIES.counts.copy(), 19 * 24 + 12
    changed[:, noon:] = 1.0  # the afternoon of the last held-out day
    once, again = train_network(SERIES, plan), train_network(replace(SERIES, counts=changed), plan)
    until = noon - once.held_out.first
    assert again.held_out.profile[:, :until] == pytest.approx(once.held_out.profile[:, :until])
    assert again.ridge == once.ridge
    assert again.held_out.base[:, :until] == pytest.approx(once.held_out.base[:, :until], rel=1e-6)


def test_the_same_twice(result):
    again = train_network(SERIES, QUICK)
    assert np.array_equal(again.held_out.network, result.held_out.network)
    assert np.array_equal(again.network.components, result.network.components)


def test_bands_hold_what_they_are_meant_to(result):
    observed = counts_from(SERIES, result.held_out.first, 4)
    for link, model in enumerate(result.models):
        lower, upper = model.bands.around(result.held_out.network[link])
        inside = (observed[link] >= lower) & (observed[link] <= upper)
        assert inside[~np.isnan(observed[link])].mean() > 0.8


def test_rank_and_memory_are_bounded(result):
    assert result.network.rank <= QUICK.most_rank
    assert len(result.network.memory) == QUICK.network_rows
    assert result.network.memory.slots.min() >= SERIES.first + 7 * 24
    assert set(result.models[2].memory.links) == {2}


def test_a_young_link_is_forecast_from_the_network():
    counts = SERIES.counts.copy()
    counts[4, : 17 * 24] = np.nan  # three days are left
    young = train_network(replace(SERIES, counts=counts), QUICK)
    model = young.models[4]
    assert model.bands is not None
    expected, observed = young.held_out.network[4, 24:, 0], counts[4, young.held_out.first + 24 :]
    known = ~np.isnan(expected) & ~np.isnan(observed)
    assert known.sum() >= 40
    assert np.sqrt(np.mean((expected - observed)[known] ** 2)) < 0.5 * np.std(observed[known])


def test_a_link_without_counts_has_no_model():
    counts = SERIES.counts.copy()
    counts[4] = np.nan
    assert train_network(replace(SERIES, counts=counts), SMALL).models[4] is None


def test_too_short_a_span_is_refused():
    with pytest.raises(NotEnoughCounts, match="at least 8 are needed"):
        train_network(SERIES.head(6 * 24), QUICK)


def three_links(**silent):
    """Return three links, some without counts in some slots."""
    counts = SERIES.counts[:3].copy()
    for place, slots in silent.items():
        counts[int(place[1:]), slots] = np.nan
    return replace(SERIES, link_ids=("a", "b", "c"), counts=counts, junction=np.full(3, -1), upstream=((),) * 3)


HELD_OUT = slice(-4 * 24, None)  # the days that QUICK holds out
BEFORE = slice(None, -4 * 24)


@pytest.mark.parametrize(
    "silent", [{"_0": HELD_OUT}, {"_1": BEFORE, "_2": BEFORE}], ids=["who would judge", "who would be learnt from"]
)
def test_where_a_third_of_the_links_cannot_judge_the_others_all_do(silent):
    done = train_network(three_links(**silent), SMALL)
    assert all(model is not None and np.isfinite(model.own).all() for model in done.models)
    assert np.isfinite(done.network.components).all()


@pytest.mark.parametrize(
    ("when", "held_out_days", "slots"), [("on", 1, slice(-24, None)), ("before", 4, slice(None, -3 * 24))]
)
def test_a_span_of_nothing_but_gaps_is_refused(when, held_out_days, slots):
    series = three_links(_0=slots, _1=slots, _2=slots)
    with pytest.raises(NotEnoughCounts, match=f"none that could be learnt from {when} the held-out days"):
        train_network(series, replace(QUICK, held_out_days=held_out_days))


@pytest.mark.parametrize("name", ContextParts().names)
def test_one_part_of_the_context_is_enough(name):
    done = train_network(SERIES, replace(SMALL, parts=ContextParts.named([name])))
    assert {part for part, _ in done.network.parts.columns} == {name}
    assert np.isfinite(done.held_out.network).all()


def test_a_network_of_one_link():
    alone = replace(SERIES, link_ids=("a",), counts=SERIES.counts[:1], junction=np.array([-1]), upstream=((),))
    assert train_network(alone, SMALL).models[0].bands is not None


def test_fresh_counts_join_and_old_ones_leave_without_learning(result):
    longer = synthetic_network(days=22)
    models = dict(zip(SERIES.link_ids, result.models, strict=True))
    plan = replace(QUICK, memory_days=8)
    network, fresh = refresh_network(longer, result.network, models, plan)
    one, before = fresh[SERIES.link_ids[3]], result.models[3]
    assert np.array_equal(one.own, before.own)
    assert np.array_equal(network.base.weights, result.network.base.weights)
    assert np.array_equal(network.components, result.network.components)
    assert one.memory.slots.max() == longer.first + 22 * 24 - 1
    assert one.memory.slots.min() == longer.first + 14 * 24
    assert not np.array_equal(network.profile.expected_counts, result.network.profile.expected_counts)


def test_a_new_link_joins_at_once(result):
    more = synthetic_network(links=10, days=20)
    counts = more.counts.copy()
    counts[9, : 18 * 24] = np.nan
    models = dict(zip(SERIES.link_ids, result.models, strict=True))
    _, fresh = refresh_network(replace(more, counts=counts), result.network, models, QUICK)
    assert fresh[more.link_ids[9]].bands is not None


def test_forecasts_of_new_slots_are_good(result):
    longer = synthetic_network(days=20)
    source = context_source(result.network, longer.counts, longer.calendar, np.arange(9), None)
    rows = np.arange(19 * 24, 19 * 24 + 20)
    found = [source.rows(rows, horizon) for horizon in (1, 2, 3, 4)]
    for link, model in enumerate(result.models):
        expected = model.forecast(
            [one.columns[link] for one in found], np.stack([one.profile[link] for one in found], axis=1)
        )
        assert (expected.lower <= expected.expected).all()
        assert (expected.expected <= expected.upper).all()
        assert np.corrcoef(expected.expected[:, 0], longer.counts[link, rows])[0, 1] > 0.8


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"horizons": 0}, "horizons=0"),
        ({"level": 1.0}, "level=1.0"),
        ({"ridge": ()}, "ridge="),
        ({"mu": (-1.0,)}, "mu="),
    ],
)
def test_plans_out_of_range_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        NetworkPlan(**change)


def test_profiles_of_a_day_are_of_earlier_days():
    later = SERIES.counts.copy()
    later[:, 10 * 24 :] = 0.0
    days = [NetworkDays(series, QUICK) for series in (SERIES, replace(SERIES, counts=later))]
    assert np.array_equal(days[0].profile(10).expected_counts, days[1].profile(10).expected_counts)
    assert not np.array_equal(days[0].profile(11).expected_counts, days[1].profile(11).expected_counts)
