import numpy as np
import pytest

from model.estimators.fixed_point import FixedPoint
from model.network_model.local_memory import LocalMemory

RNG = np.random.default_rng(1)


def memory(points, missed, n_neighbors=50):
    n = len(points)
    return LocalMemory(
        FixedPoint.of(points), FixedPoint.of(missed), np.zeros(n, dtype=np.int32), np.arange(n), n_neighbors
    )


def test_a_plane_is_found_at_its_height():
    points = RNG.standard_normal((2000, 3))
    plane = points @ np.array([0.5, -1.0, 0.2]) + 0.3
    estimates = memory(points, np.column_stack([plane, 2 * plane])).estimate(points[:40])
    assert estimates[:, 0] == pytest.approx(plane[:40], abs=0.12)
    assert estimates[:, 1] == pytest.approx(2 * plane[:40], abs=0.24)


def test_noise_alone_averages_to_little():
    points = RNG.standard_normal((3000, 2))
    estimates = memory(points, RNG.standard_normal((3000, 1)), n_neighbors=1000).estimate(RNG.standard_normal((30, 2)))
    assert np.abs(estimates).mean() < 0.15


def test_what_is_not_known_counts_for_nothing():
    points = RNG.standard_normal((400, 2))
    missed = np.full((400, 2), 1.0)
    missed[::2] = np.nan
    assert memory(points, missed).estimate(points[:5]) == pytest.approx(np.ones((5, 2)), abs=0.01)


def test_fewer_rows_than_neighbours_and_none_at_all():
    points = RNG.standard_normal((7, 2))
    assert memory(points, np.full((7, 1), 0.5)).estimate(points) == pytest.approx(np.full((7, 1), 0.5), abs=0.01)
    assert memory(np.empty((0, 2)), np.empty((0, 3))).estimate(points).tolist() == np.zeros((7, 3)).tolist()


def test_equal_rows_give_their_mean():
    estimates = memory(np.ones((30, 2)), np.arange(30.0)[:, None], n_neighbors=30).estimate(np.ones((1, 2)))
    assert estimates[0, 0] == pytest.approx(14.5, abs=0.1)


def test_neighbours_come_nearest_first_with_weights_that_sum_to_one():
    points = RNG.standard_normal((500, 3))
    found = memory(points, np.zeros((500, 1)), n_neighbors=20).neighbours(points[17])
    assert found.rows[0] == 17
    distances = np.linalg.norm(points[found.rows] - points[17], axis=1)
    assert np.all(np.diff(distances) > -1e-3)
    assert found.weights.sum() == pytest.approx(1.0)
    assert set(found.rows) == set(np.argsort(np.linalg.norm(points - points[17], axis=1))[:20])
