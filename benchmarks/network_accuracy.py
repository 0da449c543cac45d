"""Compare the network model with common alternatives on the same context, days and links.

All links of the file are in the network; those of the plain benchmark are scored. Every method is
trained on the first days and tuned on the last seven of them. Every count of the other days is scored,
one slot ahead with the true past. The network's profiles are those of the end of the training days,
except where a row is labelled otherwise.

- Ridge per link: the same context, its penalty (1 to 10,000, nine of them) tuned link by link.
- LightGBM over all links: the same context, standardised as the network's; 24 settings (leaves 7, 15,
  31 or 63; learning rate 0.03 or 0.08; all rows and columns, 70 % of both, or 50 % of the columns with
  at least 200 rows a leaf), rounds by early stopping on the held-out days, at most 600; the best is
  fitted again on all training days.
- Groups: restless links are the third whose counts deviate most from their profile on the training
  days, relative to their standard deviation. Of the others, those with a mean above their median are
  busy, the rest calm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.core.holidays import holiday_region
from app.counts.series import LinkSeries, network_calendar
from model.error_measures import GEH_SHARE, coverage, geh_pass_share, rmse, wape
from model.link_model.profile import Profile
from model.network_model.context import ContextParts
from model.network_model.days import NetworkDays
from model.network_model.network import NetworkModel, context_source
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkSeries
from model.network_model.training import NetworkResult, train_network

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
YOUNG_AGES, EVERY = (1, 3, 7), 5
BASE_ONLY: dict[str, Any] = {"metric_rows": 200, "max_iter": 0, "network_rows": 200, "n_neighbors": 10}  # a few seconds
OURS, BASE, REFRESHED, RIDGE, LIGHTGBM = (
    "NETWORK",
    "its base alone",
    "NETWORK, profiles refreshed nightly",
    "Ridge per link, same context",
    "LightGBM over all links, same context",
)


def align_counts(links: dict[str, LinkSeries]) -> NetworkSeries:
    """Return the counts of all links on one calendar; the part of an id before its last dash is the junction."""
    series = list(links.values())
    first = min(link.first for link in series)
    n = max(link.first + len(link) for link in series) - first
    counts = np.full((len(series), n), np.nan)
    for index, link in enumerate(series):
        sound = np.where(link.suspect, np.nan, link.counts)
        counts[index, link.first - first : link.first - first + len(link)] = sound
    sites = [link.link_id.rpartition("-")[0] or link.link_id for link in series]
    junction = np.unique(sites, return_inverse=True)[1].astype(np.int64)
    zone, grid = series[0].zone, series[0].grid
    holidays = holiday_region(zone.key)
    calendar = network_calendar(grid, zone, first, n, holidays)
    ids = tuple(link.link_id for link in series)
    return NetworkSeries(ids, counts, calendar, junction, ((),) * len(series), first, holidays)


@dataclass(frozen=True)
class Trial:
    """A network, its training days, and the links that are scored."""

    whole: NetworkSeries
    train_days: int
    scored: tuple[int, ...]
    plan: NetworkPlan

    @cached_property
    def test_start(self) -> int:
        """The first slot of the test days."""
        calendar = self.whole.calendar
        return int(np.searchsorted(calendar.day - calendar.day[0], self.train_days))

    @cached_property
    def training(self) -> NetworkSeries:
        """The training days."""
        return self.whole.head(self.test_start)

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """The test slots."""
        return np.arange(self.test_start, len(self.whole.calendar))

    @property
    def actual(self) -> Array:
        """Return the counts of the test slots, (n_links, n_slots)."""
        return self.whole.counts[:, self.test_start :]

    def figures(self, forecasts: Array) -> list[dict[str, float]]:
        """Measure forecasts of the scored links, (n_links, n_slots)."""
        minutes = 1440 / self.whole.calendar.slots_per_day
        out = []
        for link in self.scored:
            actual, expected = self.actual[link], forecasts[link]
            shares = (rmse(actual, expected), wape(actual, expected), geh_pass_share(actual, expected, minutes))
            out.append({name: float(m.value or 0.0) for name, m in zip(("rmse", "wape", "geh"), shares, strict=True)})
        return out


def forecast_test_slots(trial: Trial, result: NetworkResult, *, corrected: bool = True) -> Array:
    """Forecast the test slots with the profiles as of the training days, (n_links, n_slots, n_horizons)."""
    network = result.network
    source = context_source(network, trial.whole.counts, trial.whole.calendar, np.arange(len(network.link_ids)), None)
    rows = [source.rows(trial.slots, horizon) for horizon in range(1, network.horizons + 1)]
    out = np.full((len(network.link_ids), len(trial.slots), network.horizons), np.nan)
    for link, model in enumerate(result.models):
        if model is not None:
            columns = [one.columns[link] for one in rows]
            profile_counts = np.stack([one.profile[link] for one in rows], axis=1)
            out[link] = model.expected_counts(columns, profile_counts, corrected=corrected)
    return out


def refreshed_nightly(trial: Trial, result: NetworkResult) -> Array:
    """Forecast the test slots one ahead, each day with profiles learnt from the days before it, (n_links, n_slots)."""
    days = NetworkDays(trial.whole, trial.plan)
    out = np.full((len(trial.whole.link_ids), len(trial.slots)), np.nan)
    for day in range(trial.train_days, trial.whole.days):
        slots = days.slots_of(day)
        network = replace(result.network, profile=days.profile(day))
        source = context_source(
            network, trial.whole.counts, trial.whole.calendar, np.arange(len(network.link_ids)), None
        )
        rows = source.rows(slots, 1)
        for link, model in enumerate(result.models):
            if model is not None:
                fresh = NetworkModel(network, link, model.own, model.memory, model.shares)
                expected = fresh.expected_counts([rows.columns[link]], rows.profile[link][:, None])
                out[link, slots - trial.test_start] = expected[:, 0]
    return out


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


def groups_of(trial: Trial) -> dict[str, list[int]]:
    """Divide the scored links into calm, busy and restless ones by their training days."""
    deviations, means = [], []
    for link in trial.scored:
        counts, calendar = trial.training.counts[link], trial.training.calendar
        profile = Profile.learn(counts, calendar.weekday, calendar.slot_of_day, calendar.slots_per_day)
        profile_counts = profile.at(calendar.weekday, calendar.slot_of_day)
        deviations.append(float(np.sqrt(np.nanmean((counts - profile_counts) ** 2)) / np.nanstd(counts)))
        means.append(float(np.nanmean(counts)))
    restless = np.array(deviations) >= np.quantile(deviations, 2 / 3)
    busy = ~restless & (np.array(means) > np.median(np.array(means)[~restless]))
    indices = np.arange(len(deviations))
    return {
        "calm": indices[~restless & ~busy].tolist(),
        "busy": indices[busy].tolist(),
        "restless": indices[restless].tolist(),
    }


def young_links(trial: Trial, age: int) -> float:
    """Shorten the past of every fifth link; return its RMSE relative to that of a profile of the same days."""
    chosen = trial.scored[::EVERY]
    counts = trial.training.counts.copy()
    first = int(np.searchsorted(trial.training.calendar.day - trial.training.calendar.day[0], trial.train_days - age))
    counts[list(chosen), :first] = np.nan
    plan = replace(trial.plan, **BASE_ONLY)
    young = replace(trial, plan=plan)
    young.__dict__["training"] = replace(trial.training, counts=counts)
    forecasts = forecast_test_slots(young, train_network(young.training, plan))[:, :, 0]
    calendar = trial.whole.calendar
    ratios = []
    for link in chosen:
        past = calendar.weekday[: trial.test_start], calendar.slot_of_day[: trial.test_start], calendar.slots_per_day
        own = Profile.learn(counts[link], *past).at(
            calendar.weekday[trial.test_start :], calendar.slot_of_day[trial.test_start :]
        )
        errors = [float(rmse(trial.actual[link], expected).value or 0.0) for expected in (forecasts[link], own)]
        ratios.append(errors[0] / errors[1])
    return float(np.exp(np.mean(np.log(ratios))))


def ablation(trial: Trial, report_progress: ReportProgress) -> dict[str, Array]:
    """Train the network again without each part of its context; return the base's forecasts, by what was left out."""
    expected = {}
    # Links without others upstream or at their junction have the network's deviations there, so the three parts are
    # also left out together.
    for names in [*([name] for name in ContextParts().names), ["upstream", "junction", "network"]]:
        parts = replace(trial.plan.parts, **dict.fromkeys(names, False))
        plan = replace(trial.plan, parts=parts, **BASE_ONLY)
        left_out = f"without {', '.join(names)}"
        expected[left_out] = forecast_test_slots(trial, train_network(trial.training, plan), corrected=False)[:, :, 0]
        report_progress(f"ablation: {left_out}")
    return expected


def measure(
    links: dict[str, LinkSeries],
    scored: Sequence[str],
    train_days: int,
    plain: list[dict[str, Any]],
    *,
    with_ablation: bool,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Run everything; ``plain`` are the plain benchmark's figures of the scored links."""
    whole = align_counts(links)
    indices = tuple(whole.link_ids.index(link_id) for link_id in scored)
    trial = Trial(whole, train_days, indices, NetworkPlan())
    started = time.perf_counter()
    result = train_network(
        trial.training, trial.plan, lambda what, done, _of: report_progress(f"network: {what}") if not done else 0
    )
    seconds = time.perf_counter() - started
    ours = forecast_test_slots(trial, result)
    forecasts = {OURS: ours[:, :, 0], BASE: forecast_test_slots(trial, result, corrected=False)[:, :, 0]}
    forecasts[REFRESHED] = refreshed_nightly(trial, result)
    training, evaluation = training_rows(trial), evaluation_rows(trial)
    forecasts[RIDGE] = ridge_per_link(training, evaluation)
    report_progress("Ridge per link done")
    forecasts[LIGHTGBM], setting = lightgbm_over_all(training, evaluation, report_progress)
    methods = {name: trial.figures(expected) for name, expected in forecasts.items()}
    for name in plain[0]["methods"]:
        methods[name] = [link["methods"][name] for link in plain]
    report: dict[str, Any] = {
        "links": list(scored),
        "methods": methods,
        "seconds": seconds,
        "rank": result.network.rank,
        "lightgbm": setting,
        "shares": [[float(share) for share in (result.models[p] or _none()).shares] for p in indices],
        "groups": groups_of(trial),
        "horizons": _horizons(trial, result, ours),
        "coverage": _coverage(trial, result, ours),
        "young": {},
    }
    for age in YOUNG_AGES:
        report["young"][age] = young_links(trial, age)
        report_progress(f"links with {age} days done")
    if with_ablation:
        report["ablation"] = {
            name: trial.figures(expected) for name, expected in ablation(trial, report_progress).items()
        }
    return report


def _none() -> NetworkModel:
    raise ValueError("a scored link has no counts to learn from")


def _horizons(trial: Trial, result: NetworkResult, expected: Array) -> list[float]:
    """Return, for each horizon, the geometric mean of the RMSE to that of the link's own profile."""
    calendar, test_start = trial.whole.calendar, trial.test_start
    out = []
    for h in range(result.network.horizons):
        ratios = []
        for link in trial.scored:
            own = Profile.learn(
                trial.training.counts[link],
                calendar.weekday[:test_start],
                calendar.slot_of_day[:test_start],
                calendar.slots_per_day,
            )
            profile_counts = own.at(calendar.weekday[test_start:], calendar.slot_of_day[test_start:])[h:]
            actual = trial.actual[link][h:]
            errors = [float(rmse(actual, e).value or 0.0) for e in (expected[link, : len(actual), h], profile_counts)]
            ratios.append(errors[0] / errors[1])
        out.append(float(np.exp(np.mean(np.log(ratios)))))
    return out


def _coverage(trial: Trial, result: NetworkResult, expected: Array) -> list[float]:
    """Return, for each scored link, the share of test counts inside the interval, one slot ahead."""
    out = []
    for link in trial.scored:
        bands = (result.models[link] or _none()).bands
        assert bands is not None
        lower, upper = bands.around(expected[link])
        out.append(float(coverage(trial.actual[link], lower[:, 0], upper[:, 0]).value or 0.0))
    return out


def print_report(console: Console, report: dict[str, Any], pinned: str) -> None:
    """Print the methods, the groups, coverage, young links and the ablation."""
    methods, n = report["methods"], len(report["links"])
    errors = {name: np.array([figure["rmse"] for figure in figures]) for name, figures in methods.items()}
    wapes = {name: np.array([figure["wape"] for figure in figures]) for name, figures in methods.items()}
    ours, base = errors[OURS], errors[pinned]

    def mean(values: Array) -> float:
        return float(np.exp(np.mean(np.log(values))))

    table = Table(title=f"{n} links: geometric means of test RMSE to pinned KR, and of WAPE")
    for heading in ("method", "RMSE : KR", "WAPE", "NETWORK : method", "NETWORK ahead", "GEH < 5"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name in sorted(methods, key=lambda name: mean(errors[name] / base)):
        geh = np.mean([figure["geh"] for figure in methods[name]])
        ahead = "" if name == OURS else f"{int((ours < errors[name]).sum())} of {n}"
        ratio = "" if name == OURS else f"{mean(ours / errors[name]):.4f}"
        shown = (f"{mean(errors[name] / base):.4f}", f"{mean(wapes[name]):.4f}")
        table.add_row(name, *shown, ratio, ahead, f"{geh:.3f}")
    console.print(table)
    used = np.array(report["shares"])
    console.print(
        f"network learnt in {report['seconds']:.1f} s; rank {report['rank']}; memories used on "
        f"{int(used.any(axis=1).sum())} of {n} links (own {int((used[:, 0] > 0).sum())}, "
        f"network's {int((used[:, 1] > 0).sum())}); LightGBM's setting {report['lightgbm']}",
        highlight=False,
    )
    console.print(
        "to the link's own profile, horizons 1 to 4: "
        + ", ".join(f"{ratio:.4f}" for ratio in report["horizons"])
        + f"; ahead of it at horizon 1 on {int((ours < errors['profile']).sum())} of {n}",
        highlight=False,
    )
    covered = np.array(report["coverage"])
    console.print(
        f"the 90 % interval holds {covered.mean():.1%} of a link's test counts on average, at least 80 % on "
        f"{int((covered >= 0.8).sum())} of {n}",
        highlight=False,
    )
    groups = Table(title="groups: NETWORK's RMSE to the better of KR_SML on lags and Ridge on context")
    for heading in ("group", "links", "NETWORK : KR", "KR_SML : KR", "Ridge : KR", "NETWORK : better"):
        groups.add_column(heading, justify="left" if heading == "group" else "right")
    for name, members in report["groups"].items():
        if members:
            ratios = [mean((errors[method] / base)[members]) for method in (OURS, "KR_SML", RIDGE)]
            groups.add_row(
                name, str(len(members)), *(f"{ratio:.4f}" for ratio in ratios), f"{ratios[0] / min(ratios[1:]):.4f}"
            )
    console.print(groups)
    for age, ratio in report["young"].items():
        console.print(f"links with {age} days: {ratio:.4f} of the RMSE of their {age}-day profile", highlight=False)
    shares = np.array([figure["geh"] for figure in methods[OURS]])
    failing = [f"{report['links'][i]} ({shares[i]:.0%})" for i in np.flatnonzero(shares < GEH_SHARE)]
    console.print(
        f"GEH < 5 in at least {GEH_SHARE:.0%} of slots on {int((shares >= GEH_SHARE).sum())} of {n} links"
        + (f"; not on {', '.join(failing)}" if failing else ""),
        highlight=False,
    )
    if "ablation" in report:
        table = Table(
            "left out", "base : KR", "to the whole base", title="without parts of the context (the base alone)"
        )
        whole = mean(errors[BASE] / base)
        for name, figures in report["ablation"].items():
            without = mean(np.array([figure["rmse"] for figure in figures]) / base)
            table.add_row(name, f"{without:.4f}", f"{without / whole:.4f}")
        console.print(table)
