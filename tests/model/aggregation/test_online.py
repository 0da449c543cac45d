from math import isnan, nan, sqrt

import numpy as np
import pytest

from model.aggregation.online import FORGETTING, Regrets

Forecasts = list[list[float]]  # by slot, then by expert


def run(expected: np.ndarray, counts: np.ndarray, forgetting: float = FORGETTING) -> tuple[np.ndarray, np.ndarray]:
    """Aggregate (n_slots, ..., n_experts) slot by slot; return what was expected and the weights."""
    regrets, aggregates = Regrets.none(*expected.shape[1:]), []
    for forecasts, count in zip(expected, counts, strict=True):
        aggregates.append(regrets.aggregate(forecasts))
        regrets = regrets.after(forecasts, count, forgetting)
    return np.array([one.expected for one in aggregates]), np.array([one.weights for one in aggregates])


def slow_run(expected: Forecasts, counts: list[float], forgetting: float) -> tuple[list[float], Forecasts]:
    """Aggregate the forecasts of one link, in plain loops."""
    n = len(expected[0])
    cumulated, squares, largest = [0.0] * n, [0.0] * n, [0.0] * n
    means, all_weights = [], []
    for forecasts, count in zip(expected, counts, strict=True):
        available = [k for k in range(n) if not isnan(forecasts[k])]
        weights = [0.0] * n
        for k in available:
            if cumulated[k] > 0.0:
                weights[k] = cumulated[k] / (squares[k] + max(largest) ** 2)
        if sum(weights) == 0.0:
            weights = [float(k in available) for k in range(n)]
        weights = [weight / sum(weights) if available else 0.0 for weight in weights]
        mean = sum(weights[k] * forecasts[k] for k in available) if available else nan
        means.append(mean)
        all_weights.append(weights)
        if isnan(count) or not available:
            continue
        for k in range(n):
            regret = 2 * (mean - count) * (mean - forecasts[k]) if k in available else 0.0
            cumulated[k] = forgetting * cumulated[k] + regret
            squares[k] = forgetting * squares[k] + regret**2
            largest[k] = max(forgetting * largest[k], abs(regret))
    return means, all_weights


def road(rng: np.random.Generator, n_slots: int = 400, n_experts: int = 4, gaps: float = 0.0) -> tuple:
    """Return experts' forecasts of a link and its counts, some of them missing."""
    counts = rng.poisson(60, n_slots).astype(float)
    expected = (
        counts[:, None]
        + rng.normal(rng.normal(0, 5, n_experts), rng.uniform(2, 12, n_experts), (n_slots, 1, n_experts))[:, 0]
    )
    expected[rng.random(expected.shape) < gaps] = nan
    counts[rng.random(n_slots) < gaps] = nan
    return expected, counts


@pytest.mark.parametrize("forgetting", [1.0, FORGETTING, 0.9])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("n_experts", [1, 2, 5])
def test_equals_plain_loops(rng, n_experts, gaps, forgetting):
    expected, counts = road(rng, n_experts=n_experts, gaps=gaps)
    means, weights = run(expected, counts, forgetting)
    slow_means, slow_weights = slow_run(expected.tolist(), counts.tolist(), forgetting)
    np.testing.assert_allclose(means, slow_means, rtol=1e-9)
    np.testing.assert_allclose(weights, slow_weights, rtol=1e-6, atol=1e-9)


def test_weights_are_shares_of_one_and_missing_experts_have_none(rng):
    expected, counts = road(rng, gaps=0.3)
    means, weights = run(expected, counts)
    available = ~np.isnan(expected)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=1), available.any(axis=1))
    assert (weights[~available] == 0.0).all()
    known = available.any(axis=1)
    assert (means[known] >= np.nanmin(expected[known], axis=1) - 1e-9).all()
    assert (means[known] <= np.nanmax(expected[known], axis=1) + 1e-9).all()
    assert np.isnan(means[~known]).all()


def test_before_the_first_count_weights_are_equal():
    aggregate = Regrets.none(3).aggregate([10.0, 20.0, nan])
    assert aggregate.expected == 15.0
    np.testing.assert_array_equal(aggregate.weights, [0.5, 0.5, 0.0])


def test_the_order_of_experts_does_not_matter(rng):
    expected, counts = road(rng, gaps=0.1)
    means, weights = run(expected, counts)
    order = [2, 0, 3, 1]
    other_means, other_weights = run(expected[:, order], counts)
    np.testing.assert_allclose(other_means, means)
    np.testing.assert_allclose(other_weights, weights[:, order], atol=1e-9)


@pytest.mark.parametrize("unit", [4.0, 1e-4, 1e4])
def test_the_unit_of_counts_does_not_matter(rng, unit):
    expected, counts = road(rng, gaps=0.1)
    means, weights = run(expected, counts)
    other_means, other_weights = run(expected * unit, counts * unit)
    np.testing.assert_allclose(other_means, means * unit)
    np.testing.assert_allclose(other_weights, weights, atol=1e-9)


def test_a_common_offset_does_not_matter(rng):
    expected, counts = road(rng)
    np.testing.assert_allclose(run(expected + 1000.0, counts + 1000.0)[1], run(expected, counts)[1], atol=1e-6)


def test_one_expert_is_returned_as_it_is(rng):
    expected, counts = road(rng, n_experts=1)
    means, weights = run(expected, counts)
    np.testing.assert_array_equal(means, expected[:, 0])
    assert (weights == 1.0).all()


def test_identical_experts_have_equal_weights(rng):
    expected, counts = road(rng, n_experts=1)
    means, weights = run(np.repeat(expected, 3, axis=1), counts)
    np.testing.assert_allclose(means, expected[:, 0])
    np.testing.assert_allclose(weights, 1 / 3)


def test_perfect_experts_cause_no_warning():
    counts = np.arange(50.0)
    means, weights = run(np.stack([counts, counts], axis=1), counts)
    np.testing.assert_array_equal(means, counts)
    assert (weights == 0.5).all()


def test_an_expert_that_returns_has_its_weight_again(rng):
    expected, counts = road(rng)
    expected[200:260, 1] = nan
    weights = run(expected, counts, forgetting=1.0)[1]
    assert (weights[200:260, 1] == 0.0).all()
    assert weights[260, 1] > 0.0 or weights[199, 1] == 0.0


def test_a_missing_count_or_no_forecast_changes_nothing(rng):
    expected, counts = road(rng, n_slots=50)
    regrets = Regrets.none(4)
    for forecasts, count in zip(expected, counts, strict=True):
        regrets = regrets.after(forecasts, count)
    for forecasts, count in ((expected[0], nan), (np.full(4, nan), 60.0), (np.full(4, nan), nan)):
        after = regrets.after(forecasts, count)
        for name in ("cumulated", "squares", "largest"):
            np.testing.assert_array_equal(getattr(after, name), getattr(regrets, name))


def test_a_missing_expert_does_not_change_the_others_relative_weights():
    regrets = Regrets.none(3).after([50.0, 61.0, 59.0], 60.0)
    whole, without = (regrets.aggregate([first, 61.0, 59.0]).weights for first in (50.0, nan))
    np.testing.assert_allclose(without[1:] / without[1:].sum(), whole[1:] / whole[1:].sum())


def test_many_links_and_horizons_at_once_equal_one_by_one(rng):
    roads = [road(rng, gaps=0.2) for _ in range(6)]
    expected = np.stack([forecasts for forecasts, _ in roads], axis=1).reshape(400, 2, 3, 4)
    counts = np.stack([of_link for _, of_link in roads], axis=1).reshape(400, 2, 3)
    means, weights = run(expected, counts)
    for index, (forecasts, of_link) in enumerate(roads):
        alone_means, alone_weights = run(forecasts, of_link)
        np.testing.assert_array_equal(means.reshape(400, 6)[:, index], alone_means)
        np.testing.assert_array_equal(weights.reshape(400, 6, 4)[:, index], alone_weights)


def biased(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return 2,000 slots in which one of five experts is clearly the best, or two of them in turn."""
    counts = rng.normal(100, 30, 2000)
    offsets = np.tile([0.0, 4.0, 8.0, 12.0, 16.0], (2000, 1))
    if kind == "in turn":
        offsets[np.arange(2000) % 400 >= 200, :2] = [4.0, 0.0]
    return counts[:, None] + offsets + rng.normal(0, 2, offsets.shape), counts


@pytest.mark.parametrize("kind", ["one is best", "in turn"])
@pytest.mark.parametrize("seed", range(4))
def test_regret_stays_below_the_published_bound(seed, kind):
    expected, counts = biased(np.random.default_rng(seed), kind)
    means, _ = run(expected, counts, forgetting=1.0)
    regrets = 2.0 * ((means - counts) * (means - expected.T)).T  # (n_slots, n_experts)
    # Gaillard, Stoltz, van Erven (2014), theorem 5, with the range of the regrets in place of 1.
    n_slots, n_experts = expected.shape
    scale = np.abs(regrets).max() ** 2 + (regrets**2).sum(axis=0)
    bound = sqrt(n_experts * (1.0 + np.log(1.0 + n_slots))) * np.sqrt(scale)
    losses = ((expected.T - counts) ** 2).sum(axis=1)
    worse = ((means - counts) ** 2).sum() - losses
    assert (worse <= regrets.sum(axis=0) + 1e-6).all()  # the square loss is convex
    assert (regrets.sum(axis=0) <= bound).all()
    # The bound is one that can fail: the equal mean exceeds it.
    equal = expected.mean(axis=1)
    of_equal = 2.0 * ((equal - counts) * (equal - expected.T)).T
    scale = np.abs(of_equal).max() ** 2 + (of_equal**2).sum(axis=0)
    assert (of_equal.sum(axis=0) > sqrt(n_experts * (1.0 + np.log(1.0 + n_slots))) * np.sqrt(scale)).any()


@pytest.mark.parametrize("seed", range(4))
def test_is_close_to_the_best_expert_of_a_steady_road(seed):
    expected, counts = biased(np.random.default_rng(seed), "one is best")
    means, _ = run(expected, counts)
    ours, best = np.sqrt(np.mean((means - counts) ** 2)), np.sqrt(np.mean((expected[:, 0] - counts) ** 2))
    assert ours <= 1.02 * best


@pytest.mark.parametrize("seed", range(4))
def test_a_shift_of_level_is_followed_within_four_slots(seed):
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(2000) < 1500, 100.0, 50.0)
    counts = rng.normal(level, 5)
    usual, last = np.full(2000, 100.0), np.concatenate([[100.0], counts[:-1]])
    means, weights = run(np.stack([usual, last], axis=1), counts)
    before = np.sqrt(np.mean((means - counts)[1000:1500] ** 2))
    assert before < 5.5  # the level alone is off by 5, the last count by 7
    assert weights[1500, 0] > 0.5
    assert (weights[1504:1600, 1] > 0.5).all()
    assert np.sqrt(np.mean((means - counts)[1504:1600] ** 2)) < 10.0  # the level before is off by 50
