import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.estimators import kernel
from model.estimators.kernel import ExcludedRows, Memory, Neighborhood, gaussian_weights, leave_one_out_loss, scatter
from tests.support.oracles import slow_leave_one_out, slow_neighbors


def own_rows(n: int, exclusion: int = 0) -> ExcludedRows:
    return ExcludedRows(np.arange(n), np.arange(n), exclusion)


class TestNearest:
    @pytest.mark.parametrize(("n", "d", "k"), [(200, 3, 7), (50, 45, 8), (40, 2, 39), (5, 3, 9), (1, 2, 1)])
    def test_finds_the_same_rows_as_a_slow_search(self, rng, n, d, k):
        memory, queries = rng.standard_normal((n, d)), rng.standard_normal((30, d))
        rows, distances = Memory(memory).nearest(queries, k)
        for i, query in enumerate(queries):
            expected = slow_neighbors(query, memory, k)
            assert set(rows[i]) == {row for _, row in expected}
            np.testing.assert_allclose(sorted(distances[i]), [d for d, _ in expected], rtol=1e-12)

    def test_takes_the_lower_row_of_equal_distances(self, rng):
        memory = np.repeat(rng.standard_normal((10, 4)), 6, axis=0)[rng.permutation(60)]
        queries = memory[:20]
        rows, _ = Memory(memory).nearest(queries, 4)
        for i, query in enumerate(queries):
            assert sorted(rows[i]) == sorted(row for _, row in slow_neighbors(query, memory, 4))

    def test_takes_the_first_rows_when_all_are_the_same(self):
        rows, distances = Memory(np.ones((100, 5))).nearest(np.ones((3, 5)), 7)
        assert [sorted(row) for row in rows.tolist()] == [list(range(7))] * 3
        assert not distances.any()

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 4))
    def test_integer_grids_full_of_ties_follow_the_rule(self, seed, k, d):
        memory = np.random.default_rng(seed).integers(0, 3, (40, d)).astype(float)
        rows, _ = Memory(memory).nearest(memory[:10], k)
        for i in range(10):
            assert sorted(rows[i]) == sorted(row for _, row in slow_neighbors(memory[i], memory, k))

    def test_close_rows_far_from_the_origin_keep_their_distance(self):
        memory = 1e6 + np.array([[0.0], [1e-3], [3e-3], [7e-3]])
        rows, distances = Memory(memory).nearest(memory[:1], 2)
        assert sorted(rows[0]) == [0, 1]
        assert distances[0].max() == pytest.approx(1e-6, rel=1e-6)

    def test_blocks_do_not_change_the_answer(self, rng, monkeypatch):
        points = rng.standard_normal((300, 6))
        whole = Memory(points).nearest(points, 9, own_rows(300, 4))
        monkeypatch.setattr(kernel, "BLOCK_BYTES", 1)
        monkeypatch.setattr(kernel, "MIN_BLOCK_ROWS", 7)
        blocks = Memory(points).nearest(points, 9, own_rows(300, 4))
        for a, b in zip(whole, blocks, strict=True):
            np.testing.assert_allclose(np.sort(a, axis=1), np.sort(b, axis=1))

    def test_missing_neighbours_are_infinitely_far(self):
        rows, distances = Memory(np.arange(4.0)[:, None]).nearest(np.zeros((4, 1)), 3, own_rows(4, 1))
        assert rows.shape == (4, 3)
        assert np.isinf(distances).sum(axis=1).tolist() == [1, 2, 2, 1]


class TestBarred:
    def test_bars_by_position_not_by_row(self):
        positions = np.array([0, 10, 11, 30])
        ranks = np.zeros((4, 4))
        ExcludedRows(positions, positions, 1).mask(ranks, 0)
        assert np.isinf(ranks).tolist() == [
            [True, False, False, False],
            [False, True, True, False],
            [False, True, True, False],
            [False, False, False, True],
        ]

    def test_positions_may_come_in_any_order(self, rng):
        positions = rng.permutation(50)
        ranks = np.zeros((50, 50))
        ExcludedRows(positions, positions, 3).mask(ranks, 0)
        np.testing.assert_array_equal(np.isinf(ranks), np.abs(positions[:, None] - positions) <= 3)

    def test_finds_queries_without_neighbours(self):
        assert own_rows(5, 2).without_neighbors().tolist() == [False, False, True, False, False]


class TestWeights:
    def test_survive_distances_whose_kernel_underflows(self):
        weights = gaussian_weights(np.array([[1e6, 1e6 + 2.0, 1e9]]), 1.0)
        np.testing.assert_allclose(weights, [[1 / (1 + np.exp(-1)), np.exp(-1) / (1 + np.exp(-1)), 0]], rtol=1e-9)

    def test_an_infinitely_far_neighbour_weighs_nothing(self):
        assert gaussian_weights(np.array([[1.0, np.inf, 1.0]]), 0.5).tolist() == [[0.5, 0.0, 0.5]]


class TestLeaveOneOutLoss:
    @pytest.mark.parametrize(("bandwidth", "exclusion"), [(1.0, 0), (0.6, 0), (1.7, 5)])
    def test_gradient_matches_finite_differences(self, rng, bandwidth, exclusion):
        n, d = 60, 4
        inputs, targets = rng.standard_normal((n, d)), rng.standard_normal(n)
        neighborhood = Neighborhood(n, bandwidth, exclusion)  # every allowed row: no neighbour set to jump
        excluded = own_rows(n, exclusion)
        transformation = rng.standard_normal((d, d))

        def loss(a: np.ndarray) -> float:
            return leave_one_out_loss(a, inputs, targets, neighborhood, excluded)[0]

        _, gradient = leave_one_out_loss(transformation, inputs, targets, neighborhood, excluded)
        numeric = np.empty((d, d))
        for i in range(d):
            for j in range(d):
                nudge = np.zeros((d, d))
                nudge[i, j] = 1e-6
                numeric[i, j] = (loss(transformation + nudge) - loss(transformation - nudge)) / 2e-6
        np.testing.assert_allclose(2 * transformation @ gradient, numeric, rtol=1e-5, atol=1e-8)

    @pytest.mark.parametrize("exclusion", [0, 3])
    def test_loss_matches_a_slow_sum(self, rng, exclusion):
        inputs, targets = rng.standard_normal((40, 3)), rng.standard_normal(40)
        transformation = rng.standard_normal((2, 3))
        metric = transformation.T @ transformation
        value, _ = leave_one_out_loss(
            transformation, inputs, targets, Neighborhood(6, 0.8, exclusion), own_rows(40, exclusion)
        )
        estimates, _ = slow_leave_one_out(metric, inputs, targets, 6, 0.8, exclusion)
        assert value == pytest.approx(np.mean((targets - estimates) ** 2), rel=1e-10)

    def test_scatter_is_the_sum_of_outer_products(self, rng):
        inputs, rows, coefficients = (
            rng.standard_normal((20, 5)),
            rng.integers(0, 20, (20, 4)),
            rng.standard_normal((20, 4)),
        )
        expected = sum(
            coefficients[i, a] * np.outer(inputs[i] - inputs[j], inputs[i] - inputs[j])
            for i in range(20)
            for a, j in enumerate(rows[i])
        )
        np.testing.assert_allclose(scatter(inputs, rows, coefficients), expected, atol=1e-12)
