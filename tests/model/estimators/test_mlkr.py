import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from model import KR, MLKR
from tests.support.oracles import slow_leave_one_out


def test_objective_never_rises(rng):
    X = rng.uniform(-1, 1, (150, 4))
    fitted = MLKR(n_neighbors=10).fit(X, np.sin(4 * X[:, 1]))
    assert (np.diff(fitted.objective_history_) < 0).all()
    assert fitted.converged_


def test_a_penalty_is_optional(rng):
    X = rng.uniform(-1, 1, (100, 4))
    y = np.sin(4 * X[:, 1])
    free, penalised = MLKR(n_neighbors=10).fit(X, y), MLKR(n_neighbors=10, mu=0.1).fit(X, y)
    assert free.mu_ == 0.0
    assert np.trace(penalised.metric_) < np.trace(free.metric_)
    assert (np.diff(penalised.objective_history_) < 0).all()


def test_learns_to_look_where_the_targets_come_from(rng):
    X = rng.uniform(-1, 1, (300, 4))
    y = np.sin(4 * X[:, 1])
    fitted = MLKR(n_neighbors=10).fit(X[:200], y[:200])
    assert fitted.metric_.diagonal().argmax() == 1
    assert fitted.score(X[200:], y[200:]) > KR(n_neighbors=10).fit(X[:200], y[:200]).score(X[200:], y[200:])


def test_paper_solver_follows_equation_9_with_constant_alpha(rng):
    n, k, alpha = 30, 4, 0.05
    X, y = rng.uniform(-1, 1, (n, 3)), rng.standard_normal(n)
    X -= X.mean(axis=0)
    scaled = (y - y.mean()) / y.std()
    transformation = np.eye(3)
    for steps in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = MLKR(n_neighbors=k, solver="paper", alpha=alpha, tol=0.0, max_iter=steps).fit(X, y)
        np.testing.assert_allclose(fitted.metric_, transformation.T @ transformation, atol=1e-8)
        estimates, neighbors = slow_leave_one_out(fitted.metric_, X, scaled, k, 1.0)
        gradient = np.zeros((3, 3))  # of M, equation 19 without its penalty, over n
        for i, weights in enumerate(neighbors):
            for j, weight in weights:
                pull = 2 * (estimates[i] - scaled[i]) * (estimates[i] - scaled[j]) * weight / n
                gradient += pull * np.outer(X[i] - X[j], X[i] - X[j])
        transformation = transformation - alpha * 2 * transformation @ gradient
