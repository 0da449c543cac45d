"""The state of an aggregation: slot by slot, stored, described and replayed."""

from dataclasses import replace

import numpy as np
import pytest

from model.aggregation.experts import EXPERT_NAMES
from model.aggregation.intervals import LEVELS, IntervalFactors
from model.aggregation.online import Regrets
from model.aggregation.state import N_HORIZONS, Aggregation, pack, replay, unpack
from model.link_model.intervals import Bands

LINKS, SLOTS, K = 3, 40, len(EXPERT_NAMES)
BANDS = Bands(0.9, np.empty((N_HORIZONS, 0)), np.full((N_HORIZONS, 1), -9.0), np.full((N_HORIZONS, 1), 12.0))


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def counts(rng):
    counts = rng.poisson(60.0, (LINKS, SLOTS)).astype(float)
    counts[1, 12:15] = np.nan
    return counts


@pytest.fixture
def experts(rng):
    expected = rng.normal(60.0, 8.0, (LINKS, SLOTS, N_HORIZONS, K))
    expected[2, 5:20, :, 1] = np.nan  # an expert that is missing for a while
    expected[0, 30] = np.nan  # a slot without any forecast
    return expected


def slow_replay(experts, counts):
    """Aggregate one link and one horizon at a time, with lists of what is still to come."""
    expected = np.full((LINKS, SLOTS, N_HORIZONS), np.nan)
    factors = np.empty((LINKS, SLOTS, N_HORIZONS, 2, len(LEVELS)))
    for link in range(LINKS):
        for h in range(N_HORIZONS):
            regrets, around = Regrets.none(K), IntervalFactors.start()
            issued = {}
            for slot in range(SLOTS):
                factors[link, slot, h] = around.factors
                issued[slot + h] = experts[link, slot, h], regrets.aggregate(experts[link, slot, h]).expected
                expected[link, slot, h] = issued[slot + h][1]
                if slot in issued:  # its count comes now
                    of_experts, of_aggregate = issued.pop(slot)
                    count = counts[link, slot]
                    around = around.after(of_aggregate, min(9.0, max(of_aggregate, 0.0)), 12.0, count)
                    regrets = regrets.after(of_experts, count)
    return expected, factors


def assert_equal(one, other):
    for name in ("cumulated", "squares", "largest"):
        np.testing.assert_array_equal(getattr(one.regrets, name), getattr(other.regrets, name))
    np.testing.assert_array_equal(one.factors.factors, other.factors.factors)
    for name in ("experts", "expected", "below", "above"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_replay_is_what_each_link_and_horizon_gives_by_itself(experts, counts):
    done = replay(experts, counts, [BANDS] * LINKS)
    expected, factors = slow_replay(experts, counts)
    np.testing.assert_allclose(done.expected, expected, rtol=1e-12)
    np.testing.assert_allclose(done.factors.factors, factors, rtol=1e-12)
    assert np.isnan(done.expected[0, 30]).all()
    assert not done.weights[2, 5:20, :, 1].any()


def test_a_replay_goes_on_from_a_state(experts, counts):
    whole = replay(experts, counts, [BANDS] * LINKS)
    first = replay(experts[:, :25], counts[:, :25], [BANDS] * LINKS)
    second = replay(experts[:, 25:], counts[:, 25:], [BANDS] * LINKS, first.state)
    np.testing.assert_array_equal(np.concatenate([first.expected, second.expected], axis=1), whole.expected)
    assert_equal(second.state, whole.state)


def test_a_link_without_bands_has_no_interval_and_learns_weights(experts, counts):
    done = replay(experts, counts, [None, BANDS, BANDS])
    np.testing.assert_array_equal(done.expected, replay(experts, counts, [BANDS] * LINKS).expected)
    assert np.isnan(done.below[0]).all()
    np.testing.assert_array_equal(done.state.factors.factors[0], IntervalFactors.start(N_HORIZONS).factors)


def test_without_a_count_nothing_is_learnt_and_forecasts_grow_older(experts):
    state, _, _ = Aggregation.start(LINKS).forecast(experts[:, 0], [BANDS] * LINKS)
    assert state.has_forecast.all()
    later = state.after(np.full(LINKS, np.nan))
    assert not later.has_forecast.any()
    np.testing.assert_array_equal(later.regrets.cumulated, state.regrets.cumulated)
    np.testing.assert_array_equal(later.experts[:, 1], state.experts[:, 0])
    for _ in range(N_HORIZONS):
        later = later.after(np.full(LINKS, np.nan))
    assert np.isnan(later.experts).all()


def test_what_is_stored_is_read_as_it_was(experts, counts):
    state = replay(experts, counts, [BANDS] * LINKS).state
    stored = pack(state)
    assert {len(one) for one in stored} == {1824}
    assert_equal(unpack(stored), state)
    assert_equal(unpack(stored[1:2]), state.rows([1]))


def test_a_new_expert_joins_states_that_are_stored(experts, counts):
    few = replay(experts[..., : K - 1], counts, [BANDS] * LINKS).state
    read = unpack(pack(few))
    np.testing.assert_array_equal(read.regrets.cumulated[..., : K - 1], few.regrets.cumulated)
    assert not read.regrets.cumulated[..., K - 1].any()
    assert np.isnan(read.experts[..., K - 1]).all()
    np.testing.assert_array_equal(read.factors.factors, few.factors.factors)


def test_a_state_of_another_layout_is_replaced_by_the_start():
    assert_equal(unpack([b"of another layout"]), Aggregation.start(1))


def test_other_models_forecast_the_latest_slot_again(experts, counts):
    state = replay(experts, counts, [BANDS] * LINKS).state
    state, _, _ = state.forecast(experts[:, 0], [BANDS] * LINKS)
    without = state.without_latest()
    assert not without.has_forecast.any()
    np.testing.assert_array_equal(without.expected[:, 1:], state.expected[:, 1:])
    np.testing.assert_array_equal(without.regrets.squares, state.regrets.squares)


class TestJson:
    def test_regrets_and_factors_come_back(self, experts, counts):
        state = replay(experts, counts, [BANDS] * LINKS).state.rows(0)
        read = Aggregation.from_json(state.as_json())
        np.testing.assert_array_equal(read.regrets.largest, state.regrets.largest)
        np.testing.assert_array_equal(read.factors.factors, state.factors.factors)
        assert np.isnan(read.experts).all()

    def test_experts_are_known_by_their_names(self):
        described = Aggregation.start().as_json()
        order = [*reversed(EXPERT_NAMES)]
        described["cumulated"] = [[float(place) for place in range(K)]] * N_HORIZONS
        read = Aggregation.from_json(described | {"experts": order})
        np.testing.assert_array_equal(read.regrets.cumulated[0], np.arange(K)[::-1])
        some = described | {name: [row[:2] for row in described[name]] for name in ("cumulated", "squares", "largest")}
        read = Aggregation.from_json(some | {"experts": ["profile", "of another version"]})
        assert read.regrets.cumulated[0].tolist() == [0.0] * K

    @pytest.mark.parametrize(
        "changed",
        [
            {"cumulated": [[1.0] * K]},
            {"squares": [[float("nan")] * K] * N_HORIZONS},
            {"largest": "many"},
            {"levels": [0.9]},
            {"factors": [[[0.0] * len(LEVELS)] * 2] * N_HORIZONS},
            {"experts": None},
        ],
    )
    def test_what_training_does_not_write_is_refused(self, changed):
        with pytest.raises(ValueError, match="not as training writes them"):
            Aggregation.from_json(Aggregation.start().as_json() | changed)
        with pytest.raises(ValueError, match="not as training writes them"):
            Aggregation.from_json([])


def test_forecasts_without_an_expert_leave_the_state_as_it_is():
    state = replace(Aggregation.start(1))
    missing = np.full((1, N_HORIZONS, K), np.nan)
    after, aggregate, offsets = state.forecast(missing, [BANDS])
    assert np.isnan(aggregate.expected).all()
    assert np.isnan(offsets.below).all()
    assert_equal(after.after(np.array([5.0])), state)
