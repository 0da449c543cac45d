"""Measure the aggregate of experts on test days, print it, and compare it with its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.counts.series import LinkSeries
from benchmarks.disturbances import KINDS, Disturbance, disturb
from benchmarks.ensemble import (
    aggregate,
    forecast_experts,
    geometric_mean,
    root_mean_square,
    to_profile,
    train_all_on_lags,
)
from benchmarks.network_baselines import ReportProgress
from benchmarks.network_trial import Trial, align_counts, groups_of
from model.aggregation.experts import EXPERT_NAMES
from model.aggregation.intervals import LEVELS
from model.link_model.training import TrainingResult
from model.network_model.plan import NetworkPlan
from model.network_model.training import NetworkResult, train_network

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ENSEMBLE = "ENSEMBLE"
SHOWN_HORIZONS = (1, 2, 3, 4, 8, 16, 32, 48, 96)
DISTURBED, OTHERS = "disturbed", "other"


class Limit(NamedTuple):
    """A figure and the range it must be in."""

    name: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the figure is in the range."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)


def measure(
    trial: Trial,
    links: Mapping[str, LinkSeries],
    network: NetworkResult,
    on_lags: Sequence[TrainingResult],
    disturbances: Mapping[str, Disturbance],
) -> dict[str, Any]:
    """Measure the aggregate and each expert one slot ahead, intervals, and horizons to 24 hours."""
    experts = forecast_experts(trial, links, network, on_lags)
    models = [network.models[link] for link in trial.scored]
    aggregated = aggregate(experts.expected, experts.actual, [model.bands if model else None for model in models])
    test = slice(experts.n_held_out, None)
    actual = experts.actual[:, test]
    forecasts = dict(zip(EXPERT_NAMES, np.moveaxis(experts.expected[:, test, 0], -1, 0), strict=True))
    forecasts = {ENSEMBLE: aggregated.expected[:, test, 0]} | forecasts
    ids = [trial.whole.link_ids[link] for link in trial.scored]
    disturbed = np.zeros(actual.shape, dtype=np.bool_)
    for link_id, disturbance in disturbances.items():
        start = trial.whole.first + trial.test_start
        disturbed[ids.index(link_id), disturbance.slots.start - start : disturbance.slots.stop - start] = True
    inside = (aggregated.lower[:, :, test] <= actual[..., None]) & (actual[..., None] <= aggregated.upper[:, :, test])
    inside_first = np.where(np.isnan(actual), np.nan, inside[..., 0])  # (n_levels, n_links, n_slots)
    is_disturbed = disturbed.any(axis=1)
    halves = {DISTURBED: is_disturbed, OTHERS: ~is_disturbed} if disturbances else {}
    groups = halves | _by_kind(ids, disturbances) if disturbances else _groups(trial)
    regimes = {"in disturbance": disturbed, "calm": ~disturbed} if disturbances else {}
    ratios = to_profile(experts, aggregated, 1440 / trial.whole.calendar.slots_per_day)
    return {
        "links": ids,
        "rmse": {name: root_mean_square(expected - actual).tolist() for name, expected in forecasts.items()},
        "forecasts": forecasts,
        "weights": dict(zip(EXPERT_NAMES, aggregated.weights[:, test, 0].mean(axis=(0, 1)).tolist(), strict=True)),
        "groups": {name: np.flatnonzero(mask).tolist() for name, mask in groups.items()},
        "coverage": dict(zip(LEVELS, np.nanmean(inside_first, axis=2).tolist(), strict=True)),
        "coverage_by_regime": {
            name: dict(zip(LEVELS, np.nanmean(inside_first[:, mask], axis=1).tolist(), strict=True))
            for name, mask in regimes.items()
        },
        "to_profile": {
            name: [geometric_mean(of_horizon) for of_horizon in ratios[members].T]
            for name, members in ({"all": slice(None)} | halves).items()
        },
        "cost": aggregated.seconds_a_slot / experts.seconds_a_slot,
        "seconds_a_slot": {"aggregation": aggregated.seconds_a_slot, "experts": experts.seconds_a_slot},
    }


def _groups(trial: Trial) -> dict[str, Mask]:
    indices = np.arange(len(trial.scored))
    return {name: np.isin(indices, members) for name, members in groups_of(trial).items()}


def _by_kind(ids: Sequence[str], disturbances: Mapping[str, Disturbance]) -> dict[str, Mask]:
    kinds = [disturbances[link_id].kind.name if link_id in disturbances else "" for link_id in ids]
    return {kind.name: np.array([of_link == kind.name for of_link in kinds]) for kind in KINDS}


def measure_disturbed(
    links: Mapping[str, LinkSeries],
    scored: Sequence[str],
    train_days: int,
    seeds: Sequence[int],
    jobs: int,
    report_progress: ReportProgress,
) -> dict[int, dict[str, Any]]:
    """Train on the undisturbed training days, and measure the aggregate on test days disturbed with each seed."""
    whole = align_counts(links)
    calm = Trial(whole, train_days, tuple(whole.link_ids.index(link_id) for link_id in scored), NetworkPlan())
    network = train_network(calm.training, calm.plan)
    report_progress("network trained")
    on_lags = train_all_on_lags(calm, links, jobs)
    report_progress("links trained")
    reports = {}
    for seed in seeds:
        changed, disturbances = disturb(links, scored, whole.first + calm.test_start, seed)
        trial = Trial(align_counts(changed), train_days, calm.scored, calm.plan)
        report = measure(trial, changed, network, on_lags, disturbances)
        del report["forecasts"]
        report["limits"] = disturbed_limits(report)
        reports[seed] = report
        report_progress(f"seed {seed} done")
    return reports


def limits(report: dict[str, Any], pinned: Array) -> list[Limit]:
    """Return what the aggregate must reach on undisturbed links; ``pinned`` is the RMSE of pinned KR."""
    rmse = {name: np.array(errors) for name, errors in report["rmse"].items()}
    n = len(pinned)
    return [
        Limit("RMSE to pinned KR", geometric_mean(rmse[ENSEMBLE] / pinned), most=0.906),
        Limit("RMSE to NETWORK", geometric_mean(rmse[ENSEMBLE] / rmse["NETWORK"]), most=1.002),
        Limit(f"ahead of the profile, of {n}", int((rmse[ENSEMBLE] < rmse["profile"]).sum()), least=n - n // 24),
        Limit("mean coverage of 90 %", float(np.mean(report["coverage"][0.9])), 0.89, 0.91),
        *_common_limits(report),
    ]


def disturbed_limits(report: dict[str, Any]) -> list[Limit]:
    """Return what the aggregate must reach where every third link is disturbed."""
    here, others = report["groups"][DISTURBED], report["groups"][OTHERS]
    errors = mean_errors(report, here)
    best = min(errors[name] for name in EXPERT_NAMES)
    calm = mean_errors(report, others)
    coverage = np.array(report["coverage"][0.9])[here]
    return [
        Limit("disturbed links, RMSE to the best expert", errors[ENSEMBLE] / best, most=0.95),
        Limit("other links, RMSE to NETWORK", calm[ENSEMBLE] / calm["NETWORK"], most=1.003),
        Limit("disturbed links, coverage of 90 %", float(coverage.mean()), 0.87, 0.93),
        *_common_limits(report),
    ]


def _common_limits(report: dict[str, Any]) -> list[Limit]:
    covered = np.array(report["coverage"][0.9])
    return [
        Limit("share of links with coverage of at least 85 %", float((covered >= 0.85).mean()), least=0.95),
        Limit("RMSE to the profile, largest of all horizons", max(report["to_profile"]["all"]), most=1.005),
        Limit("CPU time of the aggregation to that of the experts", report["cost"], most=0.2),
    ]


def mean_errors(report: dict[str, Any], members: Sequence[int]) -> dict[str, float]:
    """Return the geometric mean of RMSE over some of the links, by method."""
    return {name: geometric_mean(np.array(errors)[members]) for name, errors in report["rmse"].items()}


def print_ensemble(console: Console, report: dict[str, Any], title: str) -> None:
    """Print the aggregate beside its experts, its intervals, horizons, cost and limits."""
    table = Table(title=f"{title}: geometric means of test RMSE to NETWORK, profiles refreshed nightly")
    for heading in ("links", "", *report["rmse"], "ENSEMBLE : best expert"):
        table.add_column(heading, justify="left" if heading == "links" else "right")
    groups = report["groups"] if DISTURBED in report["groups"] else {"all": [*range(len(report["links"]))]}
    for name, members in (groups | report["groups"]).items():
        if members:
            errors = mean_errors(report, members)
            best = min(errors[expert] for expert in EXPERT_NAMES)
            ratios = [f"{error / errors['NETWORK']:.4f}" for error in errors.values()]
            table.add_row(name, str(len(members)), *ratios, f"{errors[ENSEMBLE] / best:.4f}")
    console.print(table)
    shares = Table(title="share of counts in the intervals")
    for heading in ("counts", *(f"{level:.0%}" for level in LEVELS), "least, 90 %", "at least 85 %"):
        shares.add_column(heading, justify="left" if heading == "counts" else "right")
    for name, members in report["groups"].items():
        covered = {level: np.array(of_links)[members] for level, of_links in report["coverage"].items()}
        if members:
            means = [f"{of_links.mean():.3f}" for of_links in covered.values()]
            enough = f"{int((covered[0.9] >= 0.85).sum())} of {len(members)}"
            shares.add_row(
                f"{name} links" if name in (DISTURBED, OTHERS) else name, *means, f"{covered[0.9].min():.3f}", enough
            )
    for name, by_level in report["coverage_by_regime"].items():
        shares.add_row(name, *(f"{share:.3f}" for share in by_level.values()), "", "")
    console.print(shares)
    for name, ratios in report["to_profile"].items():
        shown = ", ".join(f"{ratios[h - 1]:.4f} ({h})" for h in SHOWN_HORIZONS if h <= len(ratios))
        largest = int(np.argmax(ratios))
        console.print(
            f"{name} links, RMSE to the profile by horizon: {shown}; largest {ratios[largest]:.4f} ({largest + 1})",
            highlight=False,
        )
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in report["weights"].items())
    seconds = report["seconds_a_slot"]
    console.print(
        f"mean weights: {weights}; CPU time a slot of all links: aggregation {seconds['aggregation'] * 1000:.2f} ms, "
        f"experts {seconds['experts'] * 1000:.1f} ms",
        highlight=False,
    )
    print_limits(console, report["limits"])


def print_limits(console: Console, checked: Sequence[Limit]) -> None:
    """Print each limit and whether it holds."""
    for limit in checked:
        ends = (("at least", limit.least), ("at most", limit.most))
        rule = " and ".join(f"{words} {end:g}" for words, end in ends if end is not None)
        console.print(
            f"{'holds' if limit.holds else 'FAILS'}: {limit.name} {limit.value:.4f}; must be {rule}", highlight=False
        )
