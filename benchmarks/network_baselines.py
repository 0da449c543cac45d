"""Ridge per link and LightGBM over all links, on the context of the network model.

- Ridge per link: its penalty (1 to 10,000, nine of them) tuned link by link.
- LightGBM over all links: columns standardised as the network's; 24 settings (leaves 7, 15, 31 or 63;
  learning rate 0.03 or 0.08; all rows and columns, 70 % of both, or 50 % of the columns with at least
  200 rows a leaf), rounds by early stopping on the held-out days, at most 600; the best is fitted again
  on all training days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.network_trial import Trial
from model.network_model.days import NetworkDays

Array = NDArray[np.float64]
ReportProgress = Callable[[str], object]

RIDGES = tuple(np.logspace(0, 4, 9))
SAMPLING: tuple[dict[str, Any], ...] = (
    {"min_child_samples": 50},
    {"min_child_samples": 100, "subsample": 0.7, "subsample_freq": 1, "colsample_bytree": 0.7},
    {"min_child_samples": 200, "colsample_bytree": 0.5},
)
SETTINGS = [
    {"num_leaves": leaves, "learning_rate": rate, **sampling}
    for leaves, rate, sampling in product((7, 15, 31, 63), (0.03, 0.08), SAMPLING)
]
MOST_ROUNDS, PATIENCE = 600, 30


@dataclass(frozen=True)
class FeatureRows:
    """Rows of context one slot ahead, for training and testing Ridge and LightGBM."""

    columns: Array  # (n_links, n_rows, n_columns)
    targets: Array  # deviations from the profile, (n_links, n_rows)
    held_out: NDArray[np.bool_]  # (n_rows,), of the held-out days
    profile: Array
    center: Array  # (n_links, n_rows)
    scale: Array


def training_rows(trial: Trial) -> FeatureRows:
    """Return the rows of the training days, each day with the profiles that training uses for it."""
    days = NetworkDays(trial.training, trial.plan)
    parts = []
    for day in range(days.first_day, trial.training.days):
        parts.append(_rows_of_day(days, day, day >= days.held_out_start))
    return _joined(parts)


def evaluation_rows(trial: Trial) -> FeatureRows:
    """Return the rows of the test days, with the profiles as of the training days."""
    days = NetworkDays(trial.whole, trial.plan)
    profile = days.profile(trial.train_days)
    return _joined([_rows_with(days, profile, trial.slots, held_out=False)])


def _rows_of_day(days: NetworkDays, day: int, held_out: bool) -> FeatureRows:
    return _rows_with(days, days.profile(day), days.slots_of(day), held_out)


def _rows_with(days: NetworkDays, profile: Any, slots: NDArray[np.int64], held_out: bool) -> FeatureRows:
    source = days.source(profile)
    rows = source.rows(slots, 1)
    shape = rows.profile.shape
    return FeatureRows(
        rows.columns,
        days.targets(source, slots, 1) - rows.profile,
        np.full(len(slots), held_out),
        rows.profile,
        np.broadcast_to(profile.center[:, None], shape),
        np.broadcast_to(profile.scale[:, None], shape),
    )


def _joined(parts: Sequence[FeatureRows]) -> FeatureRows:
    def join(name: str, axis: int) -> Any:
        return np.concatenate([getattr(part, name) for part in parts], axis=axis)

    return FeatureRows(
        join("columns", 1),
        join("targets", 1),
        join("held_out", 0),
        join("profile", 1),
        join("center", 1),
        join("scale", 1),
    )


def ridge_per_link(training: FeatureRows, evaluation: FeatureRows) -> Array:
    """Forecast by ridge regression of each link, with the penalty tuned on the held-out days."""
    out = np.full(evaluation.targets.shape, np.nan)
    for link in range(len(out)):
        rows, targets, held_out = training.columns[link], training.targets[link], training.held_out
        known = ~np.isnan(targets) & ~np.isnan(rows).any(axis=1)
        if (known & ~held_out).sum() < 100:
            continue
        best = min(RIDGES, key=lambda penalty: _held_out_error(rows, targets, known, held_out, penalty))
        model = _Ridge.fit(rows[known], targets[known], best)
        out[link] = _counts(evaluation, link, model.predict(evaluation.columns[link]))
    return out


def _held_out_error(
    rows: Array, targets: Array, known: NDArray[np.bool_], held_out: NDArray[np.bool_], penalty: float
) -> float:
    model = _Ridge.fit(rows[known & ~held_out], targets[known & ~held_out], penalty)
    return float(np.mean((model.predict(rows[known & held_out]) - targets[known & held_out]) ** 2))


@dataclass(frozen=True)
class _Ridge:
    mean: Array
    scale: Array
    weights: Array
    offset: float

    @classmethod
    def fit(cls, rows: Array, targets: Array, penalty: float) -> _Ridge:
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        standard, offset = (rows - mean) / scale, float(targets.mean())
        gram = standard.T @ standard + penalty * np.eye(len(mean))
        return cls(mean, scale, np.linalg.solve(gram, standard.T @ (targets - offset)), offset)

    def predict(self, rows: Array) -> Array:
        return np.asarray((rows - self.mean) / self.scale @ self.weights + self.offset)


def lightgbm_over_all(
    training: FeatureRows, evaluation: FeatureRows, report_progress: ReportProgress
) -> tuple[Array, dict[str, Any]]:
    """Forecast by LightGBM over all links, with setting and rounds tuned on the held-out days."""
    import lightgbm

    known = ~np.isnan(training.targets) & ~np.isnan(training.columns).any(axis=2)
    before, held_out = known & ~training.held_out, known & training.held_out
    X, y, eval_X, eval_y = (
        training.columns[before],
        training.targets[before],
        training.columns[held_out],
        training.targets[held_out],
    )
    tuned: list[tuple[float, int, dict[str, Any]]] = []
    for number, setting in enumerate(SETTINGS, start=1):
        candidate = lightgbm.LGBMRegressor(n_estimators=MOST_ROUNDS, n_jobs=-1, verbose=-1, **setting)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        candidate.fit(X, y, eval_X=eval_X, eval_y=eval_y, callbacks=[stop])
        tuned.append((candidate.best_score_["valid_0"]["l2"], candidate.best_iteration_ or MOST_ROUNDS, setting))
        if number % 6 == 0:
            report_progress(f"LightGBM: {number} of {len(SETTINGS)} settings")
    _, rounds, setting = min(tuned, key=lambda candidate: candidate[0])
    final = lightgbm.LGBMRegressor(n_estimators=rounds, n_jobs=-1, verbose=-1, **setting)
    final.fit(training.columns[known], training.targets[known])
    expected = np.stack(
        [_counts(evaluation, link, np.asarray(final.predict(evaluation.columns[link]))) for link in range(len(known))]
    )
    return expected, {**setting, "rounds": rounds}


def _counts(evaluation: FeatureRows, link: int, deviations: Array) -> Array:
    expected = (evaluation.profile[link] + deviations) * evaluation.scale[link] + evaluation.center[link]
    return np.asarray(np.maximum(expected, 0.0))
