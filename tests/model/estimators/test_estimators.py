"""The common behaviour of all four estimators."""

import io
import pickle
from functools import partial

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from model import KR, KR_PCA, KR_SML, MLKR
from tests.support.oracles import slow_kr

ALL = [KR, KR_PCA, MLKR, KR_SML]
SML = partial(KR_SML, mu=1e-3)  # to choose mu takes many fits, and is looked at elsewhere
LEARNT = [MLKR, SML]


def wave(rng: np.random.Generator, n: int = 120, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X[:, 0]) + 0.3 * X[:, 1] + 0.05 * rng.standard_normal(n)


# Two candidates and two folds: which mu wins is not at stake, and the suite fits hundreds of times.
@pytest.mark.journey
@parametrize_with_checks([KR(), KR_PCA(), MLKR(), KR_SML(mu=(1e-2, 1e-3), cv=2, tol=1e-2)])
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [KR, KR_PCA, MLKR, pytest.param(SML, id="KR_SML")])
class TestEveryEstimator:
    def test_predicts_as_a_slow_oracle_does(self, rng, estimator):
        X, y = wave(rng)
        fitted = estimator(n_neighbors=9, bandwidth=0.7).fit(X, y)
        queries = rng.uniform(-1, 1, (25, 5))
        means, spreads = fitted.predict(queries, return_std=True)
        memory = fitted.transform(X)
        for query, mean, spread in zip(fitted.transform(queries), means, spreads, strict=True):
            assert (mean, spread) == pytest.approx(slow_kr(query, memory, y, 9, 0.7), rel=1e-8)
        np.testing.assert_array_equal(fitted.predict(queries), means)

    def test_components_factor_the_metric_and_transform_is_documented(self, rng, estimator):
        X, y = wave(rng)
        fitted = estimator(n_neighbors=9, standardize=True).fit(X, y)
        assert fitted.components_.shape == (fitted.rank_, 5)
        np.testing.assert_allclose(fitted.components_.T @ fitted.components_, fitted.metric_, atol=1e-12)
        np.testing.assert_allclose(
            fitted.transform(X), ((X - fitted.mean_) / fitted.scale_) @ fitted.components_.T, atol=1e-12
        )

    def test_neighbours_come_nearest_first_with_weights_that_make_the_estimate(self, rng, estimator):
        X, y = wave(rng)
        fitted = estimator(n_neighbors=9).fit(X, y)
        rows, weights = fitted.kneighbors(X[:10] + 0.01)
        assert rows.shape == weights.shape == (10, 9)
        assert (np.diff(weights, axis=1) <= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        np.testing.assert_allclose((weights * y[rows]).sum(axis=1), fitted.predict(X[:10] + 0.01))

    def test_pickle_and_joblib_round_trips_predict_the_same_bits(self, rng, estimator):
        X, y = wave(rng)
        fitted = estimator(n_neighbors=9).fit(X, y)
        expected = fitted.predict(X)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), expected)
        stream = io.BytesIO()
        joblib.dump(fitted, stream)
        stream.seek(0)
        np.testing.assert_array_equal(joblib.load(stream).predict(X), expected)

    def test_neighbours_are_ordered_by_distance_even_when_their_weights_vanish(self, estimator):
        X = np.concatenate([[0.0, 1000.0, 500.0, 900.0], np.linspace(2000, 9000, 20)])[:, None]
        plain = {"max_iter": 2, "mu": 0.0, "solver": "paper", "alpha": 1e-12, "tol": 1.0} if estimator in LEARNT else {}
        fitted = estimator(n_neighbors=4, standardize=False, **plain).fit(X, np.arange(24.0))
        assert fitted.kneighbors([[0.0]])[0].tolist() == [[0, 2, 3, 1]]

    def test_a_refused_fit_leaves_the_last_one_as_it_was(self, rng, estimator):
        X, y = wave(rng, 30)
        fitted = estimator(n_neighbors=5).fit(X, y)
        before = fitted.predict(X)
        with pytest.raises(ValueError, match="size 1e\\+60"):
            fitted.fit(X * 7 + 5, np.where(y == y[0], 1e60, y))
        np.testing.assert_array_equal(fitted.predict(X), before)

    def test_a_refused_first_fit_leaves_it_unfitted(self, estimator):
        fresh = estimator(n_neighbors=5)
        with pytest.raises(ValueError, match="size 1e\\+60"):
            fresh.fit([[0.0], [1e60]], [0.0, 1.0])
        with pytest.raises(NotFittedError):
            fresh.predict([[0.0]])

    def test_very_small_inputs_keep_their_differences(self, rng, estimator):
        X, y = wave(rng, 40)
        large = estimator(n_neighbors=5, standardize=True).fit(X, y).predict(X)
        small = estimator(n_neighbors=5, standardize=True).fit(X * 2.0**-700, y).predict(X * 2.0**-700)
        np.testing.assert_allclose(small, large, rtol=1e-6)

    def test_clones_and_grid_searches(self, rng, estimator):
        X, y = wave(rng, 60)
        search = GridSearchCV(clone(estimator()), {"n_neighbors": [1, 5]}, cv=2).fit(X, y)
        assert search.best_params_["n_neighbors"] in (1, 5)

    def test_estimates_far_from_zero_lose_nothing(self, rng, estimator):
        X, y = wave(rng)
        near = estimator(n_neighbors=9).fit(X, y).predict(X)
        far = estimator(n_neighbors=9).fit(X, y + 1e9).predict(X)
        np.testing.assert_allclose(far - 1e9, near, atol=1e-5)

    def test_float32_inputs_are_computed_in_float64(self, rng, estimator):
        X, y = wave(rng)
        X32 = X.astype(np.float32)
        single = estimator(n_neighbors=9).fit(X32, y.astype(np.float32))
        double = estimator(n_neighbors=9).fit(X32.astype(float), y.astype(np.float32).astype(float))
        np.testing.assert_array_equal(single.predict(X32), double.predict(X32.astype(float)))

    def test_k_at_and_above_n_uses_every_row(self, rng, estimator):
        X, y = wave(rng, 12)
        few, all_ = estimator(n_neighbors=12).fit(X, y), estimator(n_neighbors=500).fit(X, y)
        np.testing.assert_allclose(few.predict(X), all_.predict(X))
        assert all_.kneighbors(X)[0].shape == (12, 12)

    def test_more_inputs_than_rows_and_constant_columns_work(self, rng, estimator):
        X, y = rng.standard_normal((12, 20)), rng.standard_normal(12)
        X[:, 7] = 1e7 / 3
        for standardize in (True, False, "auto"):
            fitted = estimator(n_neighbors=4, standardize=standardize).fit(X, y)
            assert np.isfinite(fitted.predict(X)).all()

    def test_nothing_but_duplicates_gives_their_mean(self, estimator):
        X, y = np.ones((40, 3)), np.arange(40.0)
        np.testing.assert_allclose(estimator(n_neighbors=5).fit(X, y).predict(X[:2]), y[:5].mean())

    def test_kernel_values_that_underflow_leave_the_nearest(self, rng, estimator):
        X, y = 1e5 * rng.standard_normal((50, 3)), rng.standard_normal(50)
        fitted = estimator(n_neighbors=5, standardize=False)
        if estimator in LEARNT:
            fitted.set_params(max_iter=2, mu=0.0, solver="paper", alpha=1e-12, tol=1.0)
        fitted.fit(X, y)
        np.testing.assert_allclose(fitted.predict(X), y)

    def test_auto_standardises_only_spreads_more_than_tenfold_apart(self, rng, estimator, capsys):
        X, y = wave(rng)
        assert not estimator(verbose=True).fit(X, y).standardized_
        assert "not standardised" in capsys.readouterr().out
        fitted = estimator(verbose=True).fit(X * [1, 1, 1, 1, 11], y)
        assert fitted.standardized_
        assert "inputs are standardised" in capsys.readouterr().out
        np.testing.assert_allclose(fitted.scale_, (X * [1, 1, 1, 1, 11]).std(axis=0))

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_neighbors": 0}, r"n_neighbors=0 is refused; it must be a whole number of at least 1"),
            ({"n_neighbors": -3}, r"n_neighbors=-3"),
            ({"n_neighbors": 2.5}, r"n_neighbors=2\.5"),
            ({"n_neighbors": True}, r"n_neighbors=True"),
            ({"bandwidth": 0}, r"bandwidth=0 is refused; it must be a finite number above 0"),
            ({"bandwidth": -1.0}, r"bandwidth=-1\.0"),
            ({"bandwidth": float("nan")}, r"bandwidth=nan"),
            ({"bandwidth": float("inf")}, r"bandwidth=inf"),
            ({"bandwidth": 1e-200}, r"bandwidth=1e-200 is refused; it must be a number between 1e-20 and 1e\+20"),
            ({"bandwidth": "wide"}, r"bandwidth='wide'"),
            (
                {"standardize": "sometimes"},
                r"standardize='sometimes' is refused; it must be one of True, False, 'auto'",
            ),
        ],
    )
    def test_refuses_a_parameter_by_name_value_and_rule(self, rng, estimator, parameters, message):
        with pytest.raises(ValueError, match=message):
            estimator(**parameters).fit(*wave(rng, 30))

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda X, y: (np.where(X[3, 2] == X, np.nan, X), y), "Input X contains NaN"),
            (lambda X, y: (np.where(X[3, 2] == X, np.inf, X), y), "Input X contains infinity"),
            (lambda X, y: (X, np.where(y == y[5], np.nan, y)), "Input y contains NaN"),
            (lambda X, y: (X, np.where(y == y[5], -np.inf, y)), "Input y contains infinity"),
            (lambda X, y: (X[:0], y[:0]), "0 sample"),
            (lambda X, y: (X[:, :0], y), "0 feature"),
            (lambda X, y: (X, y[:-1]), r"inconsistent numbers of samples: \[30, 29\]"),
            (lambda X, y: (X[0], y), "Expected 2D array, got 1D array"),
        ],
    )
    def test_refuses_data_it_cannot_learn_from(self, rng, estimator, spoil, message):
        with pytest.raises(ValueError, match=message):
            estimator().fit(*spoil(*wave(rng, 30)))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
    def test_refuses_queries_that_cannot_be_computed_with(self, rng, estimator, bad):
        fitted = estimator(n_neighbors=3).fit(*wave(rng, 30))
        query = np.zeros((2, 5))
        query[1, 4] = bad
        with pytest.raises(ValueError, match=r"Input X (contains|holds a value of size 1e\+200)"):
            fitted.predict(query)

    def test_refuses_queries_of_another_width(self, rng, estimator):
        fitted = estimator(n_neighbors=3).fit(*wave(rng, 30))
        with pytest.raises(ValueError, match=r"X has 4 features, but .* is expecting 5"):
            fitted.predict(np.zeros((1, 4)))


@pytest.mark.journey
@pytest.mark.parametrize("estimator", ALL)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31), shift=st.floats(-1e3, 1e3))
def test_moving_the_inputs_changes_nothing(estimator, seed, shift):
    rng = np.random.default_rng(seed)
    X, y = wave(rng, 40, 3)
    parameters = {"n_neighbors": 5} | ({"mu": 1e-3} if estimator is KR_SML else {})
    here = estimator(**parameters).fit(X, y)
    there = estimator(**parameters).fit(X + shift, y)
    np.testing.assert_allclose(there.predict(X + shift), here.predict(X), atol=1e-5)


@pytest.mark.journey
@pytest.mark.parametrize("estimator", ALL)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_order_of_rows_and_columns_changes_nothing(estimator, seed):
    rng = np.random.default_rng(seed)
    X, y = wave(rng, 40, 3)
    rows, columns = rng.permutation(40), rng.permutation(3)
    parameters = {"n_neighbors": 5} | ({"mu": 1e-3} if estimator is KR_SML else {})
    here = estimator(**parameters).fit(X, y)
    there = estimator(**parameters).fit(X[rows][:, columns], y[rows])
    assert there.rank_ == here.rank_
    np.testing.assert_allclose(there.predict(X[:, columns]), here.predict(X), atol=1e-5)
    np.testing.assert_allclose(there.metric_, here.metric_[np.ix_(columns, columns)], atol=1e-4)


@pytest.mark.journey
@pytest.mark.parametrize("estimator", ALL)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31), factor=st.sampled_from([0.25, 2.0, 1024.0]))
def test_units_of_inputs_and_targets_do_not_matter_when_standardised(estimator, seed, factor):
    rng = np.random.default_rng(seed)
    X, y = wave(rng, 40, 3)
    parameters = {"n_neighbors": 5, "standardize": True} | ({"mu": 1e-3} if estimator is KR_SML else {})
    here = estimator(**parameters).fit(X, y)
    there = estimator(**parameters).fit(X * [factor, 1.0, 1.0 / factor], y * factor)
    np.testing.assert_allclose(there.metric_, here.metric_, atol=1e-4)
    np.testing.assert_allclose(
        there.predict(X * [factor, 1.0, 1.0 / factor]), factor * here.predict(X), rtol=1e-4, atol=1e-4 * factor
    )
