"""Compare the network model with common alternatives on the same context, days and links.

All links of the file are in the network; those of the plain benchmark are scored. Every method is
trained on the first days and tuned on the last seven of them. Every count of the other days is scored,
one slot ahead with the true past. The network's profiles are those of the end of the training days,
except where a row is labelled otherwise.

- Ridge per link and LightGBM over all links have the same context (`network_baselines`).
- ENSEMBLE aggregates the forecasts of five experts online (`ensemble`).
- Groups: restless links are the third whose counts deviate most from their profile on the training
  days, relative to their standard deviation. Of the others, those with a mean above their median are
  busy, the rest calm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.counts.series import LinkSeries
from benchmarks import ensemble_report
from benchmarks.ensemble import train_all_on_lags
from benchmarks.network_baselines import (
    ReportProgress,
    evaluation_rows,
    lightgbm_over_all,
    ridge_per_link,
    training_rows,
)
from benchmarks.network_trial import Trial, align_counts, forecast_test_slots, groups_of
from model.error_measures import GEH_SHARE, coverage, rmse
from model.link_model.profile import Profile
from model.network_model.context import ContextParts
from model.network_model.network import NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.training import NetworkResult, train_network

Array = NDArray[np.float64]

YOUNG_AGES, EVERY = (1, 3, 7), 5
BASE_ONLY: dict[str, Any] = {"metric_rows": 200, "max_iter": 0, "network_rows": 200, "n_neighbors": 10}  # a few seconds
OURS, BASE, REFRESHED, RIDGE, LIGHTGBM = (
    "NETWORK",
    "its base alone",
    "NETWORK, profiles refreshed nightly",
    "Ridge per link, same context",
    "LightGBM over all links, same context",
)
ROWS = {"NETWORK": REFRESHED, "profile": "profile, refreshed nightly"}  # of experts, where the name means another row


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
    links: Mapping[str, LinkSeries],
    scored: Sequence[str],
    train_days: int,
    plain: list[dict[str, Any]],
    *,
    pinned: str,
    jobs: int,
    with_ablation: bool,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Run everything; ``plain`` are the figures of the scored links by method on lags, ``pinned`` is one of these."""
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
    report_progress("network done")
    aggregated = ensemble_report.measure(trial, links, result, train_all_on_lags(trial, links, jobs), {})
    for name, expected in aggregated.pop("forecasts").items():
        forecasts[ROWS.get(name, name)] = np.full(trial.actual.shape, np.nan)
        forecasts[ROWS.get(name, name)][list(trial.scored)] = expected
    report_progress("ENSEMBLE done")
    training, evaluation = training_rows(trial), evaluation_rows(trial)
    forecasts[RIDGE] = ridge_per_link(training, evaluation)
    report_progress("Ridge per link done")
    forecasts[LIGHTGBM], setting = lightgbm_over_all(training, evaluation, report_progress)
    methods = {name: trial.figures(expected) for name, expected in forecasts.items()}
    for name in plain[0]["methods"]:
        methods[name] = [link["methods"][name] for link in plain]
    aggregated["limits"] = ensemble_report.limits(aggregated, np.array([row["rmse"] for row in methods[pinned]]))
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
        "ensemble": aggregated,
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
    ensemble_report.print_ensemble(console, report["ensemble"], "ENSEMBLE")
