import numpy as np
import pytest

from model.estimators.fixed_point import FixedPoint
from model.link_model.trained_model import nearest_rows, square_norms
from tests.support.oracles import slow_neighbors


@pytest.mark.parametrize("k", [1, 7, 40])
def test_finds_the_same_rows_in_the_same_order_as_a_slow_search(rng, k):
    memory = FixedPoint.of(rng.normal(size=(300, 12)))
    for query in rng.normal(size=(20, 12)):
        rows, distances = nearest_rows(memory, square_norms(memory), query, k)
        expected = sorted(slow_neighbors(query, memory.values(), k))
        assert rows.tolist() == [row for _, row in expected]
        np.testing.assert_allclose(distances, [distance for distance, _ in expected], rtol=1e-12)


def test_of_rows_at_the_same_distance_the_earlier_comes_first(rng):
    values = np.repeat(rng.normal(size=(5, 4)), 10, axis=0)
    memory = FixedPoint.of(values)
    rows, _ = nearest_rows(memory, square_norms(memory), memory.values()[12], 4)
    assert rows.tolist() == [10, 11, 12, 13]


def test_rows_equal_in_single_precision_are_distinguished(rng):
    near = 1.0 + np.arange(64) * 2.0**-14  # steps of one unit, far below float32's grain at this distance
    memory = FixedPoint.of(np.column_stack([near, np.full(64, 2000.0)]))
    query = np.array([1.0, 2000.0])
    rows, _ = nearest_rows(memory, square_norms(memory), query, 5)
    exact = np.abs(memory.values() - query).sum(axis=1)
    assert exact[rows].tolist() == np.sort(exact)[:5].tolist()


def test_a_memory_smaller_than_k_gives_all_it_has(rng):
    memory = FixedPoint.of(rng.normal(size=(3, 2)))
    rows, distances = nearest_rows(memory, square_norms(memory), np.zeros(2), 40)
    assert sorted(rows.tolist()) == [0, 1, 2]
    assert (np.diff(distances) >= 0).all()
