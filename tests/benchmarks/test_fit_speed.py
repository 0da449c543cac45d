import numpy as np

from benchmarks.fit_speed import daily_windows, gradient_alone, our_steps, plain_steps, prediction, same_result, show


def test_both_sides_of_the_comparison_compute_the_same():
    X, y = daily_windows(150, 6)
    assert gradient_alone(X, y, repeats=1)["difference"] < 1e-12
    assert prediction(X, y, repeats=1)["difference"] < 1e-12
    np.testing.assert_allclose(our_steps(X, y, 8), plain_steps(X, y, 8), atol=1e-8)


def test_windows_are_the_series_one_slot_apart():
    X, y = daily_windows(200, 5)
    np.testing.assert_array_equal(X[1:, :-1], X[:-1, 1:])
    np.testing.assert_array_equal(y[:-1], X[1:, -1])


def results(difference: float = 0.0) -> dict:
    figures = {"ours_ms": 1.0, "plain_ms": 25.0, "ratio": 25.0, "difference": difference, "proximal_ms": 3.0}
    rows = {"one_row_us": 50.0, "one_row_sklearn_us": 500.0, "one_row_ratio": 10.0}
    predict = {"difference": 0.0} | rows | {name.replace("one_row", "all_rows"): v for name, v in rows.items()}
    growth = {"n": {"values": [500, 1000], "ms": [1.0, 4.0], "exponent": 2.0}}
    return {"gradient": figures, "ten_steps": figures, "predict": predict, "growth": growth}


def test_shows_every_figure(capsys):
    show(results(), results())
    out = capsys.readouterr().out
    assert "25.0x" in out
    assert "2.00 (2.00)" in out


def test_a_difference_between_the_sides_is_a_failure():
    assert same_result(results(1e-9))
    assert not same_result(results(1e-7))
