import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from model import KR, KR_SML
from model.estimators.learnt_metric import MU_CANDIDATES, MU_FOR_FEW_ROWS
from tests.support.oracles import paper_listing


def ridge_of(rng: np.random.Generator, n: int = 200, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return targets that depend on one direction of the inputs."""
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X @ np.ones(d) / np.sqrt(d)) + 0.05 * rng.standard_normal(n)


class TestPaperSolver:
    @pytest.mark.parametrize("bandwidth", [np.sqrt(0.5), 1.0])
    def test_follows_the_papers_listing_iterate_by_iterate(self, rng, bandwidth):
        n, k, mu, alpha = 40, 5, 0.4, 2e-3
        X, y = ridge_of(rng, n, 3)
        y = 5.0 + 3.0 * y
        metrics, objectives = paper_listing(X - X.mean(axis=0), y, k, bandwidth, mu, alpha, theta=0.0, most=8)
        unit = n * y.var()  # the paper sums over raw targets, we average over standardised ones
        for steps in range(9):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fitted = KR_SML(
                    n_neighbors=k, bandwidth=bandwidth, mu=mu / unit, alpha=alpha * unit, solver="paper",
                    tol=0.0, max_iter=steps, standardize=False,
                ).fit(X, y)  # fmt: skip
            assert fitted.n_iter_ == steps
            np.testing.assert_allclose(fitted.metric_, metrics[steps], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(fitted.objective_history_ * unit, objectives[: steps + 1], rtol=1e-8)

    def test_stops_where_the_listing_stops(self, rng):
        n, k, mu, alpha = 40, 5, 0.4, 2e-3
        X, y = ridge_of(rng, n, 3)
        _, objectives = paper_listing(X, y, k, 1.0, mu, alpha, theta=0.0, most=8)
        changes = np.abs(np.diff(objectives))
        theta = np.sort(changes)[2] * (1 + 1e-9)  # reached after some steps, and not at the last
        expected = int(np.argmax(changes <= theta)) + 1
        unit = n * y.var()
        fitted = KR_SML(
            n_neighbors=k, mu=mu / unit, alpha=alpha * unit, solver="paper", tol=theta / unit, max_iter=8
        ).fit(X, y)
        assert fitted.converged_
        assert fitted.n_iter_ == expected > 1


class TestProximalSolver:
    @pytest.mark.journey
    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 2**31), st.sampled_from([0.0, 1e-4, 1e-2, 1.0]), st.integers(1, 5))
    def test_objective_never_rises_and_the_metric_stays_in_the_cone(self, seed, mu, d):
        X, y = ridge_of(np.random.default_rng(seed), 50, d)
        fitted = KR_SML(n_neighbors=6, mu=mu).fit(X, y)
        assert (np.diff(fitted.objective_history_) <= 0).all()
        assert len(fitted.objective_history_) == fitted.n_iter_ + 1
        np.testing.assert_array_equal(fitted.metric_, fitted.metric_.T)
        values = np.linalg.eigvalsh(fitted.metric_)
        assert values[0] >= -1e-12 * values[-1]
        assert fitted.rank_ == len(fitted.components_) == np.linalg.matrix_rank(fitted.components_)
        assert 1 <= fitted.rank_ <= d

    def test_finds_the_one_direction_that_matters(self, rng):
        X, y = ridge_of(rng, 400)
        fitted = KR_SML(n_neighbors=15, mu=0.01).fit(X, y)
        direction = fitted.components_[0] / np.linalg.norm(fitted.components_[0])
        assert abs(direction @ np.ones(6)) / np.sqrt(6) > 0.99
        assert fitted.rank_ <= 2

    @pytest.mark.journey
    def test_more_mu_means_less_trace(self, rng):
        X, y = ridge_of(rng)
        traces = [np.trace(KR_SML(n_neighbors=10, mu=mu).fit(X, y).metric_) for mu in (1e-4, 1e-2, 1.0)]
        assert traces[0] > traces[1] > traces[2]

    def test_starts_at_plain_kr(self, rng):
        X, y = ridge_of(rng)
        with pytest.warns(ConvergenceWarning, match="max_iter=0"):
            fitted = KR_SML(n_neighbors=10, mu=1e-3, max_iter=0).fit(X, y)
        assert not fitted.converged_
        np.testing.assert_allclose(fitted.predict(X), KR(n_neighbors=10).fit(X, y).predict(X))

    def test_non_convergence_warns_and_is_stored(self, rng):
        with pytest.warns(ConvergenceWarning, match=r"KR_SML stopped after max_iter=2 steps .* tol=0.001"):
            assert not KR_SML(n_neighbors=10, mu=1e-3, max_iter=2).fit(*ridge_of(rng)).converged_

    def test_prints_each_step_when_verbose(self, rng, capsys):
        fitted = KR_SML(n_neighbors=10, mu=1e-3, verbose=True).fit(*ridge_of(rng))
        lines = [line for line in capsys.readouterr().out.splitlines() if " step " in line]
        assert len(lines) == fitted.n_iter_ + 1
        assert lines[0].startswith("KR_SML: step 0: objective ")
        assert lines[-1].endswith(f"rank {fitted.rank_}")


class TestPaperSolverGoneWrong:
    def test_steps_that_diverge_are_refused(self, rng):
        with pytest.raises(ValueError, match=r"alpha=1e\+19 is refused: steps of that length diverge"):
            # On a grid the nearest are equally far, so that the gradient does not vanish.
            KR_SML(mu=0.0, solver="paper", alpha=1e19, tol=0.0).fit(1e20 * rng.integers(0, 3, (40, 3)), rng.random(40))

    def test_a_metric_of_rank_zero_warns(self, rng):
        with pytest.warns(UserWarning, match="learnt a metric of rank 0"):
            assert KR_SML(n_neighbors=5, mu=10.0, solver="paper", alpha=0.5).fit(*ridge_of(rng, 40)).rank_ == 0


@pytest.mark.journey
class TestChoiceOfMu:
    def test_prints_each_fold_when_verbose(self, rng, capsys):
        KR_SML(n_neighbors=10, mu=[1e-2, 1e-3], cv=3, verbose=True).fit(*ridge_of(rng, 60))
        out = capsys.readouterr().out
        assert "KR_SML: fold 1 of 3, mu 0.01: error " in out
        assert "KR_SML: fold 3 of 3, mu " in out

    def test_auto_is_the_default_and_chooses_among_the_candidates(self, rng):
        X, y = ridge_of(rng, 180, 4)
        fitted = KR_SML(n_neighbors=10).fit(X[:80], y[:80])
        assert fitted.mu_ in MU_CANDIDATES
        plain = KR(n_neighbors=10).fit(X[:80], y[:80])
        assert fitted.score(X[80:], y[80:]) > plain.score(X[80:], y[80:])

    def test_the_same_seed_chooses_the_same(self, rng):
        X, y = ridge_of(rng, 60, 3)
        one, other = (KR_SML(n_neighbors=10, mu="auto", random_state=3).fit(X, y) for _ in range(2))
        assert one.mu_ == other.mu_
        np.testing.assert_array_equal(one.metric_, other.metric_)

    def test_stays_with_plain_kr_where_nothing_beats_it(self, rng):
        X, y = rng.standard_normal((60, 3)), np.zeros(60)
        fitted = KR_SML(n_neighbors=10).fit(X, y)
        assert fitted.n_iter_ == 0
        assert fitted.converged_
        np.testing.assert_array_equal(fitted.metric_, np.eye(3))

    def test_too_few_rows_to_choose_use_a_fixed_mu(self, rng):
        assert KR_SML(n_neighbors=3).fit(*ridge_of(rng, 9, 2)).mu_ == MU_FOR_FEW_ROWS
        assert KR_SML(n_neighbors=3, mu=[0.5, 0.1]).fit(*ridge_of(rng, 9, 2)).mu_ == 0.5

    def test_folds_too_small_for_the_exclusion_use_it_too(self, rng):
        assert KR_SML(n_neighbors=5, exclusion=96).fit(*ridge_of(rng, 200, 2)).mu_ == MU_FOR_FEW_ROWS

    def test_a_repeated_candidate_is_one_candidate(self, rng):
        X, y = ridge_of(rng, 60, 3)
        once = KR_SML(n_neighbors=10, mu=[1e-2, 1e-3], cv=3).fit(X, y)
        twice = KR_SML(n_neighbors=10, mu=[1e-2, 1e-2, 1e-3, 1e-3], cv=3).fit(X, y)
        np.testing.assert_array_equal(once.metric_, twice.metric_)

    def test_a_given_mu_is_kept(self, rng):
        assert KR_SML(n_neighbors=10, mu=0.02).fit(*ridge_of(rng)).mu_ == 0.02

    def test_candidates_may_be_given(self, rng):
        assert KR_SML(n_neighbors=10, mu=[0.02, 0.001]).fit(*ridge_of(rng, 60, 3)).mu_ in (0.02, 0.001)

    def test_a_bad_candidate_is_refused(self, rng):
        with pytest.raises(ValueError, match=r"mu=-1\.0 is refused"):
            KR_SML(mu=(0.1, -1.0)).fit(*ridge_of(rng, 30))

    def test_an_array_of_one_number_is_that_number(self, rng):
        assert KR_SML(n_neighbors=10, mu=np.array(0.02)).fit(*ridge_of(rng, 60)).mu_ == 0.02

    @pytest.mark.parametrize("mu", [-1e-9, float("nan"), float("inf"), "much", None, (), 10**400])
    def test_refuses_other_values(self, rng, mu):
        with pytest.raises(ValueError, match=re.escape(f"mu={mu!r} is refused")):
            KR_SML(mu=mu).fit(*ridge_of(rng, 30))

    def test_refuses_fewer_than_two_folds(self, rng):
        with pytest.raises(ValueError, match="cv=1 is refused"):
            KR_SML(cv=1).fit(*ridge_of(rng, 30))
