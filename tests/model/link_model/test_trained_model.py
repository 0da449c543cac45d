from dataclasses import replace

import numpy as np
import pytest

from model.estimators.kernel import Neighborhood
from model.link_model.trained_model import MAX_SINGLE_QUERIES, mean_weights, neighborhood_sizes
from model.link_model.training import train
from model.link_model.training_plan import TrainingPlan
from tests.support.link_series import QUICK, SLOTS, link


@pytest.fixture(scope="module")
def model():
    return train(link(15), TrainingPlan(**QUICK)).model


def test_weights_are_the_mean_of_those_of_each_size(rng):
    distances = np.sort(rng.uniform(0, 4, (3, 16)), axis=1)
    sizes = neighborhood_sizes(8)
    assert sizes == (3, 5, 6, 8, 11, 16)
    slow = np.zeros_like(distances)
    for row in range(3):
        for size in sizes:
            kernel = np.exp(-distances[row, :size] / 2.0)
            slow[row, :size] += kernel / kernel.sum() / len(sizes)
    np.testing.assert_allclose(mean_weights(distances, Neighborhood(8, 1.0)), slow, rtol=1e-12)
    np.testing.assert_allclose(slow.sum(axis=1), 1.0)


def test_a_memory_smaller_than_every_size_is_shared_by_what_is_there():
    assert mean_weights(np.array([[0.0, 0.0]]), Neighborhood(20, 1.0)).tolist() == [[0.5, 0.5]]


def test_few_windows_and_many_get_the_same_forecasts(model, rng):
    windows = np.abs(rng.normal(80, 40, (MAX_SINGLE_QUERIES + 5, 12)))
    together = model.forecast(windows)
    for i in range(len(windows)):
        isolated = model.forecast(windows[i : i + 1])
        np.testing.assert_allclose(isolated.expected[0], together.expected[i], rtol=1e-12)
        np.testing.assert_array_equal(model.neighbors(windows[i : i + 1])[0][0], model.neighbors(windows)[0][i])


def test_neighbours_come_nearest_first_and_their_weights_fall(model, rng):
    for windows in (np.full((1, 12), 60.0), np.abs(rng.normal(80, 40, (MAX_SINGLE_QUERIES + 1, 12)))):
        rows, weights = model.neighbors(windows)
        assert rows.shape == weights.shape == (len(windows), neighborhood_sizes(8)[-1])
        assert (np.diff(weights, axis=1) <= 1e-15).all()


def test_without_the_slots_around_it_a_window_is_not_its_own_neighbour(model):
    rows = model.window.training_set(link(15).counts)
    kept = slice(500, 520)
    isolated = model.expected_counts_excluding(rows.X[kept], rows.positions[kept], exclusion=SLOTS)
    narrow = replace(model, neighborhood=Neighborhood(1, 1e-6))
    own = narrow.expected_counts(rows.X[kept])[:, 0]
    np.testing.assert_allclose(own, rows.y[kept], atol=0.6)  # with itself in memory it is found
    assert np.abs(isolated[:, 0] - rows.y[kept]).mean() > 1.0
