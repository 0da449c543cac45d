"""Time learning and prediction, as ratios to reference implementations.

The references are a plain NumPy transcription of the paper's equations 19 to 21 with explicit outer
products, and scikit-learn's nearest-neighbour regressor. Growth with n, d and k is timed as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

from model import KR, KR_SML
from model.estimators.kernel import (
    ExcludedRows,
    Memory,
    Neighborhood,
    gaussian_weights,
    leave_one_out_loss,
    scatter,
    weighted_mean,
)

Array = NDArray[np.float64]

ROWS, LAGS, NEIGHBORS = 2067, 45, 8  # the paper's traffic size: 22 days of 96 slots less 45 lags
STEPS, ALPHA, MU = 10, 0.5, 1e-3
SLOTS_A_DAY = 96
SAME = 1e-8


def daily_windows(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Return standardised lag windows of a noisy daily wave, and the count that follows each."""
    slots = np.arange(n + d)
    noise = np.random.default_rng(seed).standard_normal(n + d)
    series = np.sin(2 * np.pi * slots / SLOTS_A_DAY) + 0.4 * np.sin(4 * np.pi * slots / SLOTS_A_DAY) + 0.3 * noise
    series = (series - series.mean()) / series.std()
    return np.lib.stride_tricks.sliding_window_view(series, d)[:n].copy(), series[d:]


def plain_gradient(X: Array, y: Array, rows: NDArray[np.intp], weights: Array, estimates: Array) -> Array:
    """Return equation 19 without its penalty, divided by n, from explicit outer products."""
    n, d = X.shape
    gradient = np.zeros((d, d))
    for i in range(n):
        gaps = X[i] - X[rows[i]]  # (k, d)
        outers = gaps[:, :, None] * gaps[:, None, :]  # (k, d, d)
        coefficients = (estimates[i] - y[i]) * (estimates[i] - y[rows[i]]) * weights[i]
        gradient += np.sum(coefficients[:, None, None] * outers, axis=0)
    return np.asarray(2.0 * gradient / n)


def neighbors_under(metric: Array, X: Array, y: Array, k: int) -> tuple[NDArray[np.intp], Array, Array]:
    values, vectors = np.linalg.eigh(metric)
    projected = X @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    excluded = ExcludedRows(np.arange(len(X)), np.arange(len(X)), 0)
    rows, distances = Memory(projected).nearest(projected, k, excluded)
    weights = gaussian_weights(distances, 1.0)
    return rows, weights, weighted_mean(weights, y[rows])


def plain_steps(X: Array, y: Array, k: int) -> Array:
    """Run ten steps of equations 19 to 21 on standardised targets, with the same neighbour search and alpha."""
    y = (y - y.mean()) / y.std()
    metric = np.eye(X.shape[1])
    for _ in range(STEPS):
        rows, weights, estimates = neighbors_under(metric, X, y, k)
        gradient = plain_gradient(X, y, rows, weights, estimates) + MU * np.eye(len(metric))
        values, vectors = np.linalg.eigh(metric - ALPHA * gradient)
        metric = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return metric


def our_steps(X: Array, y: Array, k: int, solver: str = "paper") -> Array:
    estimator = KR_SML(
        n_neighbors=k, mu=MU, alpha=ALPHA, solver=solver, tol=0.0, max_iter=STEPS, standardize=False  # type: ignore[arg-type]
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # only ten steps are timed
        metric: Array = estimator.fit(X, y).metric_
    return metric


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the least time of several calls in seconds, because load from elsewhere only adds to it."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def gradient_alone(X: Array, y: Array, repeats: int) -> dict[str, float]:
    rows, weights, estimates = neighbors_under(np.eye(X.shape[1]), X, y, NEIGHBORS)

    def ours() -> Array:
        coefficients = (estimates - y)[:, None] * weights * (estimates[:, None] - y[rows])
        return 2.0 * scatter(X, rows, coefficients) / len(y)

    difference = float(np.abs(ours() - plain_gradient(X, y, rows, weights, estimates)).max())
    fast = seconds(ours, repeats)
    slow = seconds(lambda: plain_gradient(X, y, rows, weights, estimates), max(1, repeats // 3))
    return {"ours_ms": 1e3 * fast, "plain_ms": 1e3 * slow, "ratio": slow / fast, "difference": difference}


def ten_steps(X: Array, y: Array, repeats: int) -> dict[str, float]:
    difference = float(np.abs(our_steps(X, y, NEIGHBORS) - plain_steps(X, y, NEIGHBORS)).max())
    fast = seconds(lambda: our_steps(X, y, NEIGHBORS), repeats)
    slow = seconds(lambda: plain_steps(X, y, NEIGHBORS), 1)
    proximal = seconds(lambda: our_steps(X, y, NEIGHBORS, "proximal"), repeats)
    return {
        "ours_ms": 1e3 * fast,
        "plain_ms": 1e3 * slow,
        "ratio": slow / fast,
        "difference": difference,
        "proximal_ms": 1e3 * proximal,
    }


def prediction(X: Array, y: Array, repeats: int) -> dict[str, float]:
    ours = KR(n_neighbors=NEIGHBORS, standardize=False).fit(X, y)

    def gaussian(distances: Array) -> Array:
        return gaussian_weights(np.asarray(distances) ** 2, 1.0)

    theirs = KNeighborsRegressor(n_neighbors=NEIGHBORS, weights=gaussian, algorithm="brute").fit(X, y)
    queries = X + 0.01
    one = queries[:1]
    out = {"difference": float(np.abs(ours.predict(queries) - theirs.predict(queries)).max())}
    for name, batch, times in (("one_row", one, 100 * repeats), ("all_rows", queries, repeats)):
        fast = seconds(lambda batch=batch: ours.predict(batch), times)  # type: ignore[misc]
        slow = seconds(lambda batch=batch: theirs.predict(batch), times)  # type: ignore[misc]
        out |= {f"{name}_us": 1e6 * fast, f"{name}_sklearn_us": 1e6 * slow, f"{name}_ratio": slow / fast}
    return out


def evaluation(n: int, d: int, k: int, repeats: int) -> float:
    """Return the seconds of one evaluation of loss and gradient."""
    X, y = daily_windows(n, d)
    excluded = ExcludedRows(np.arange(n), np.arange(n), 0)
    return seconds(lambda: leave_one_out_loss(np.eye(d), X, y, Neighborhood(k, 1.0), excluded), repeats)


def growth(quick: bool) -> dict[str, Any]:
    """Time one evaluation for growing n, d and k, and fit the exponent of a power."""
    sizes = {
        "n": [500, 1000, 2000, 4000] if quick else [500, 1000, 2000, 4000, 8000, 16000],
        "d": [8, 16, 32, 64, 128],
        "k": [4, 8, 16, 32, 64],
    }
    table: dict[str, Any] = {}
    for name, values in sizes.items():
        at = [{"n": ROWS, "d": LAGS, "k": NEIGHBORS} | {name: value} for value in values]
        times = [evaluation(**sizes_at, repeats=2 if sizes_at["n"] > 4000 else 5) for sizes_at in at]
        exponent = float(np.polyfit(np.log(values), np.log(times), 1)[0])
        table[name] = {"values": values, "ms": [1e3 * t for t in times], "exponent": exponent}
    return table


def measure(quick: bool, one_thread: bool) -> dict[str, Any]:
    X, y = daily_windows(ROWS, LAGS)
    repeats = 3 if quick else 9
    limits: AbstractContextManager[object] = threadpool_limits(limits=1) if one_thread else nullcontext()
    with limits:
        return {
            "gradient": gradient_alone(X, y, repeats),
            "ten_steps": ten_steps(X, y, repeats),
            "predict": prediction(X, y, repeats),
            "growth": growth(quick),
        }


def show(one: dict[str, Any], default: dict[str, Any]) -> None:
    """Print both runs side by side."""
    print(f"n = {ROWS}, d = {LAGS}, k = {NEIGHBORS}, windows of a noisy daily wave; least of several runs")
    print("BLAS and OpenMP on one thread for both sides; beside it, in the last columns, the default: all cores\n")
    print(f"{'':22}{'ours':>11}{'other':>11}{'ratio':>8}   {'default: ours':>14}{'other':>11}{'ratio':>8}")
    for title, part, ours, other, ratio, unit in (
        ("gradient alone", "gradient", "ours_ms", "plain_ms", "ratio", "ms"),
        ("ten whole steps", "ten_steps", "ours_ms", "plain_ms", "ratio", "ms"),
        ("ten proximal steps", "ten_steps", "proximal_ms", "", "", "ms"),
        ("predict one row", "predict", "one_row_us", "one_row_sklearn_us", "one_row_ratio", "us"),
        (f"predict {ROWS} rows", "predict", "all_rows_us", "all_rows_sklearn_us", "all_rows_ratio", "us"),
    ):
        line = f"{title:22}"
        for run, width in ((one, 8), (default, 14)):
            figures = run[part]
            line += f"{figures[ours]:{width}.1f} {unit}"
            line += f"{figures[other]:8.1f} {unit}{figures[ratio]:7.1f}x" if other else " " * 19
        print(line)
    print("\nother: equations 19 to 21 in plain NumPy with explicit outer products; for predict, scikit-learn's")
    print("KNeighborsRegressor(weights=callable, algorithm='brute'). Largest differences between the two sides:")
    parts = ("gradient", "ten_steps", "predict")
    print("  " + ", ".join(f"{part} {one[part]['difference']:.1e}" for part in parts))
    print("\none evaluation of loss and gradient, growing one size at a time (ms; default in brackets)")
    for name, grown in one["growth"].items():
        beside = default["growth"][name]
        print(f"  {name:2}" + "".join(f"{value:>16}" for value in grown["values"]) + f"{'exponent':>14}")
        cells = (f"{a:.1f} ({b:.1f})" for a, b in zip(grown["ms"], beside["ms"], strict=True))
        print(f"  {'':2}" + "".join(f"{cell:>16}" for cell in cells), end="")
        print(f"{grown['exponent']:>7.2f} ({beside['exponent']:.2f})")


def same_result(result: dict[str, Any]) -> bool:
    """Return whether both sides of every comparison agree to 1e-8."""
    return all(result[part]["difference"] <= SAME for part in ("gradient", "ten_steps", "predict"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_speed", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, n up to 4,000")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    results = {
        "one_thread": measure(options.quick, one_thread=True),
        "default": measure(options.quick, one_thread=False),
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results["one_thread"], results["default"])
    if not all(same_result(result) for result in results.values()):
        print(f"fit_speed: the two sides differ by more than {SAME}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
