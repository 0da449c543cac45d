"""The common features of MLKR and KR_SML: exclusion, positions, early stopping."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from model import KR, KR_SML, MLKR

LEARNT = [MLKR, KR_SML]


def walk(rng: np.random.Generator, n: int = 300, lags: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return lag windows of a slow random walk; adjacent rows share all but one value."""
    series = np.cumsum(rng.standard_normal(n + lags)) / 4
    X = np.lib.stride_tricks.sliding_window_view(series, lags)[:n]
    return X.copy(), series[lags:]


@pytest.mark.parametrize("estimator", LEARNT)
class TestExclusion:
    def test_excluding_neighbours_in_time_raises_the_loss_at_the_start(self, rng, estimator):
        X, y = walk(rng)
        leaking = estimator(n_neighbors=5, **fixed_mu(estimator)).fit(X, y)
        honest = estimator(n_neighbors=5, exclusion=20, **fixed_mu(estimator)).fit(X, y)
        assert honest.objective_history_[0] > leaking.objective_history_[0]

    def test_rows_without_gaps_need_no_positions(self, rng, estimator):
        X, y = walk(rng, 120)
        settings = {"n_neighbors": 5, "exclusion": 7} | fixed_mu(estimator)
        without = estimator(**settings).fit(X, y)
        given = estimator(**settings).fit(X, y, positions=1000 + np.arange(120))
        np.testing.assert_array_equal(without.metric_, given.metric_)

    def test_positions_far_apart_exclude_nothing_but_the_row(self, rng, estimator):
        X, y = walk(rng, 120)
        apart = estimator(n_neighbors=5, exclusion=7, **fixed_mu(estimator)).fit(X, y, positions=100 * np.arange(120))
        unordered = estimator(n_neighbors=5, **fixed_mu(estimator)).fit(X, y)
        np.testing.assert_array_equal(apart.metric_, unordered.metric_)

    def test_refuses_an_exclusion_that_leaves_no_neighbour(self, rng, estimator):
        with pytest.raises(
            ValueError, match=r"exclusion=96 is refused: with 60 rows to learn from, the row at position \d+"
        ):
            estimator(exclusion=96).fit(*walk(rng, 60))

    @pytest.mark.parametrize(
        ("positions", "message"),
        [
            ([1, 2, 3], r"positions has shape \(3,\); .* each of 60 rows"),
            (np.full(60, 0.5), r"positions holds 0\.5"),
            ([*range(59), np.nan], "positions holds nan"),
            (["a"] * 60, "positions holds 'a'"),
            ([*range(59), None], "positions holds None"),
            ([*range(59), np.inf], "positions holds inf"),
            ([*range(59), 1e300], r"positions holds 1e\+300"),
            (np.arange(60, dtype=np.uint64) + np.uint64(2**63), "positions holds 9223372036854775808"),
        ],
    )
    def test_refuses_positions_that_are_not_whole_numbers_a_row(self, rng, estimator, positions, message):
        with pytest.raises(ValueError, match=message):
            estimator().fit(*walk(rng, 60), positions=positions)


@pytest.mark.parametrize("estimator", LEARNT)
class TestEarlyStopping:
    def test_the_last_rows_are_the_last_by_position(self, rng, estimator):
        X, y = walk(rng)
        shuffled = rng.permutation(300)
        settings = {"n_neighbors": 5, "exclusion": 20, "early_stopping": 60} | fixed_mu(estimator)
        sorted_ = estimator(**settings).fit(X, y)
        unsorted = estimator(**settings).fit(X[shuffled], y[shuffled], positions=shuffled)
        np.testing.assert_allclose(unsorted.held_out_history_, sorted_.held_out_history_, rtol=1e-6)

    def test_being_cut_off_by_max_iter_is_no_convergence(self, rng, estimator):
        X = rng.standard_normal((120, 8))
        y = X[:, 0] + rng.standard_normal(120)
        with pytest.warns(ConvergenceWarning, match="max_iter=2"):
            fitted = estimator(n_neighbors=10, early_stopping=40, max_iter=2, **fixed_mu(estimator)).fit(X, y)
        assert not fitted.converged_

    @pytest.mark.parametrize("seed", range(5))
    def test_is_never_worse_than_kr_on_the_held_out_rows(self, estimator, seed):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((120, 8)), rng.standard_normal(120)  # nothing to learn: easy to overfit
        fitted = estimator(n_neighbors=10, early_stopping=40).fit(X, y)
        plain = KR(n_neighbors=10).fit(X[:80], y[:80]).predict(X[80:])
        assert fitted.held_out_history_[0] == pytest.approx(np.mean((plain - y[80:]) ** 2) / y.var())
        assert fitted.held_out_history_[-1] <= fitted.held_out_history_[0]
        assert fitted.held_out_history_[-1] == fitted.held_out_history_.min()
        assert len(fitted.held_out_history_) == len(fitted.objective_history_) == fitted.n_iter_ + 1

    def test_held_out_rows_join_the_memory(self, rng, estimator):
        X, y = walk(rng, 100)
        fitted = estimator(n_neighbors=1, early_stopping=20).fit(X, y)
        np.testing.assert_allclose(fitted.predict(X), y)

    def test_a_stop_by_held_out_error_counts_as_converged(self, rng, estimator):
        X, y = rng.standard_normal((120, 8)), rng.standard_normal(120)
        assert estimator(n_neighbors=10, early_stopping=40).fit(X, y).converged_

    @pytest.mark.parametrize("rows", [0, -4, 2.5, True, 59])
    def test_refuses_a_number_of_rows_that_cannot_be_held_out(self, rng, estimator, rows):
        with pytest.raises(ValueError, match=f"early_stopping={rows!r} is refused"):
            estimator(early_stopping=rows).fit(*walk(rng, 60))


@pytest.mark.parametrize("estimator", LEARNT)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "magic"}, "solver='magic' is refused; it must be one of 'proximal', 'paper'"),
        ({"alpha": 0.0}, r"alpha=0\.0 is refused"),
        ({"max_iter": -1}, "max_iter=-1 is refused"),
        ({"max_iter": 1.5}, r"max_iter=1\.5 is refused"),
        ({"tol": -1e-3}, r"tol=-0\.001 is refused"),
        ({"exclusion": -1}, "exclusion=-1 is refused"),
        ({"exclusion": 10**30}, "exclusion=10+ is refused; it must be a whole number of at most"),
        ({"cv": 1}, "cv=1 is refused"),
        ({"mu": -1.0}, r"mu=-1\.0 is refused"),
        ({"random_state": "bad"}, "'bad' cannot be used to seed"),
        ({"exclusion": 0.5}, r"exclusion=0\.5 is refused"),
    ],
)
def test_refuses_a_parameter_by_name_value_and_rule(rng, estimator, parameters, message):
    with pytest.raises(ValueError, match=message):
        estimator(**parameters).fit(*walk(rng, 60))


@pytest.mark.parametrize("estimator", LEARNT)
def test_one_row_is_too_few_to_learn_a_metric(estimator):
    with pytest.raises(ValueError, match="n_samples=1; learning a metric needs at least 2 rows"):
        estimator().fit([[1.0, 2.0]], [3.0])


def fixed_mu(estimator: type) -> dict[str, float]:
    return {"mu": 1e-3} if estimator is KR_SML else {}


@pytest.mark.parametrize("estimator", LEARNT)
@pytest.mark.parametrize("choice", [{"early_stopping": 30}, {"mu": (1e-2, 1e-3)}, {"mu": 1e-3}])
def test_an_exception_before_an_evaluation_ends_the_fit(rng, estimator, choice):
    X, y = walk(rng, 120)
    evaluations = []

    def stop_at_third() -> None:
        evaluations.append(1)
        if len(evaluations) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        estimator(n_neighbors=5, max_iter=20, **choice).fit(X, y, on_evaluation=stop_at_third)
    assert len(evaluations) == 3
