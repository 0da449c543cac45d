import numpy as np
import pytest

from benchmarks.fit_speed import daily_windows, gradient_alone, our_steps, plain_steps, prediction, show


def test_both_sides_of_the_comparison_compute_the_same():
    X, y = daily_windows(150, 6)
    assert gradient_alone(X, y, repeats=1)["difference"] < 1e-12
    assert prediction(X, y, repeats=1)["difference"] < 1e-12
    np.testing.assert_allclose(our_steps(X, y, 8), plain_steps(X, y, 8), atol=1e-8)


def test_windows_are_the_series_one_slot_apart():
    X, y = daily_windows(200, 5)
    np.testing.assert_array_equal(X[1:, :-1], X[:-1, 1:])
    np.testing.assert_array_equal(y[:-1], X[1:, -1])


def test_shows_every_figure(capsys):
    figures = {"ours_ms": 1.0, "plain_ms": 25.0, "ratio": 25.0, "difference": 0.0, "proximal_ms": 3.0}
    rows = {"one_row_us": 50.0, "one_row_sklearn_us": 500.0, "one_row_ratio": 10.0}
    predict = {"difference": 0.0} | rows | {name.replace("one_row", "all_rows"): v for name, v in rows.items()}
    growth = {"n": {"values": [500, 1000], "ms": [1.0, 4.0], "exponent": 2.0}}
    show("One thread", {"gradient": figures, "ten_steps": figures, "predict": predict, "growth": growth})
    out = capsys.readouterr().out
    assert "25.0 times faster" in out
    assert "n^2.00" in out


@pytest.mark.parametrize("solver", ["paper", "proximal"])
def test_ten_steps_reduce_the_rank_or_keep_it(solver):
    X, y = daily_windows(150, 6)
    assert np.linalg.matrix_rank(our_steps(X, y, 8, solver)) <= 6
