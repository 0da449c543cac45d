import numpy as np
import pytest
from sklearn.linear_model import Ridge

from model.network_model.base_fit import NormalEquations, fit_base, fit_own

RNG = np.random.default_rng(2)
COLUMNS = RNG.normal(2.0, 3.0, (4, 300, 5))
TARGETS = COLUMNS @ RNG.standard_normal(5) + RNG.standard_normal((4, 300)) + np.arange(4)[:, None] * COLUMNS[:, :, 0]


def equations(columns=COLUMNS, targets=TARGETS):
    sums = NormalEquations(4, 5)
    for begin in range(0, 300, 100):  # day by day
        sums.add(columns[:, begin : begin + 100], targets[:, begin : begin + 100])
    return sums


def test_the_base_is_ridge_regression_of_all_rows():
    base = fit_base([equations()], [10.0])
    rows = COLUMNS.reshape(-1, 5)
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    reference = Ridge(alpha=10.0).fit(standard, TARGETS.ravel())
    assert base.weights[0] == pytest.approx(reference.coef_)
    assert base.offset[0] == pytest.approx(reference.intercept_)


def test_own_parts_are_ridge_regressions_of_what_the_base_leaves():
    base = fit_base([equations()], [10.0])
    own = fit_own([equations()], base, [5.0])
    standard = base.standardised(COLUMNS[2], 1)
    left = TARGETS[2] - standard @ base.weights[0] - base.offset[0]
    assert own[2, 0] == pytest.approx(Ridge(alpha=5.0, fit_intercept=False).fit(standard, left).coef_)


def test_errors_from_sums_are_errors_from_rows():
    base = fit_base([equations()], [10.0])
    own = fit_own([equations()], base, [5.0])[:, 0]
    forecasts = np.einsum("lrp,lp->lr", base.standardised(COLUMNS, 1), base.weights[0] + own) + base.offset[0]
    assert equations().squared_errors(base, 0, own) == pytest.approx(((TARGETS - forecasts) ** 2).mean(axis=1))


def test_rows_with_something_missing_are_left_out():
    columns, targets = COLUMNS.copy(), TARGETS.copy()
    columns[0, 5, 2], targets[1, 7] = np.nan, np.nan
    sums = equations(columns, targets)
    assert sums.n.tolist() == [299, 299, 300, 300]
    assert np.isfinite(sums.products).all()


def test_sums_add_up():
    both = equations(COLUMNS, TARGETS).plus(equations(COLUMNS, TARGETS))
    assert both.n.tolist() == [600] * 4
    assert both.with_targets == pytest.approx(2 * equations().with_targets)


def test_an_infinite_penalty_leaves_the_profile_alone():
    base = fit_base([equations(), equations()], [10.0, np.inf])
    assert base.weights[0].any()
    assert not base.weights[1].any()
    assert base.offset[1] == 0.0
    assert not fit_own([equations(), equations()], base, [np.inf, np.inf]).any()
