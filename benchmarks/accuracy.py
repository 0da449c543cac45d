"""Measure accuracy on real counts, one slot ahead, link by link and in geometric mean.

Methods are trained on the first days of each link, and forecast the others from the true past. Every
test count is scored, suspect or not. All ratios are to pinned KR: 45 lags, one mean and one standard
deviation per link from the training days, k = 8, sigma = 1. KR_PCA and "MLKR, to the end" have the
same protocol, KR_SML and "MLKR, stopped" are trained as in production. Links need counts on every day
and a mean above 30. LightGBM has the same 45 lags and one model per link; its grid (15 or 31 leaves,
at least 10 or 40 rows a leaf; learning rate 0.05, rounds by early stopping, at most 600) is tuned on
the same held-out days.

--network adds the network model, its baselines and ENSEMBLE, the aggregate of experts. --disturb compares
ENSEMBLE with its experts alone, where detectors die and levels shift. --pems-lane is a published
comparison. With these three, the exit code is 1 if ENSEMBLE, or KR_SML on the lane, misses a limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from app.counts.series import LinkSeries, series_of_files
from app.evaluation.days import DaySplit
from app.evaluation.protocol import PaperModel
from benchmarks import ensemble_report, network_accuracy, pems_lane
from model.error_measures import coverage, geh_pass_share, mare, rmse, wape
from model.link_model.training import train
from model.link_model.training_plan import TrainingPlan
from tests.support.data import MissingData, data_directory

Array = NDArray[np.float64]

LAGS, MIN_MEAN, HELD_OUT_DAYS = 45, 30.0, 7
PINNED = "KR, pinned"
FIXED: dict[str, Any] = {"learning_rate": 0.05, "n_jobs": 1, "verbose": -1}
GRID = [(leaves, rows) for leaves in (15, 31) for rows in (10, 40)]
MEASURES = {"rmse": rmse, "wape": wape, "mare": mare, "geh": geh_pass_share}


def lightgbm_per_link(span: DaySplit, test: Array) -> Array:
    import lightgbm

    X, y, _ = span.rows
    held = HELD_OUT_DAYS * span.series.slots_per_day
    tuned: list[tuple[float, int, dict[str, Any]]] = []
    for leaves, least in GRID:
        settings = {"num_leaves": leaves, "min_child_samples": least} | FIXED
        candidate = lightgbm.LGBMRegressor(n_estimators=600, **settings)
        stop = lightgbm.early_stopping(30, verbose=False)
        candidate.fit(X[:-held], y[:-held], eval_X=X[-held:], eval_y=y[-held:], callbacks=[stop])
        tuned.append((candidate.best_score_["valid_0"]["l2"], candidate.best_iteration_ or 600, settings))
    _, rounds, settings = min(tuned, key=lambda candidate: candidate[0])
    final = lightgbm.LGBMRegressor(n_estimators=rounds, **settings).fit(X, y)
    return np.asarray(np.maximum(np.asarray(final.predict(test)), 0.0))


def evaluate(link: LinkSeries, train_days: int) -> dict[str, Any]:
    """Train all methods on a link's first days and measure them on the rest."""
    span = DaySplit(link, train_days * link.grid.slots_per_day, LAGS)
    slots = span.test_slots[~np.isnan(span.series.counts[span.cut :])]
    windows, actual = span.windows(slots), span.series.counts[slots]
    methods: dict[str, dict[str, Any]] = {}

    def record(name: str, forecast: Callable[[], Array]) -> None:
        started = time.perf_counter()
        expected = forecast()
        methods[name] = {"seconds": time.perf_counter() - started}
        methods[name] |= {measure: function(actual, expected).value for measure, function in MEASURES.items()}

    record(PINNED, lambda: PaperModel.fit("KR", span).expected(windows))
    record("KR_PCA", lambda: PaperModel.fit("KR_PCA", span).expected(windows))
    record("MLKR, to the end", lambda: PaperModel.fit("MLKR", span).expected(windows))
    record("profile", lambda: span.profile[slots])
    record("last week", lambda: span.last_week()[slots])
    record("LightGBM", lambda: lightgbm_per_link(span, windows))
    for name, algorithm in (("MLKR, stopped", "MLKR"), ("KR_SML", "KR_SML")):
        started = time.perf_counter()
        plan = TrainingPlan(algorithm=algorithm, held_out_days=HELD_OUT_DAYS)
        model = train(span.training, plan, suspect=span.training_link.suspect).model
        forecasts = model.forecast(windows)
        record(name, lambda forecasts=forecasts: forecasts.expected[:, 0])  # type: ignore[misc]
        methods[name] |= {
            "seconds": time.perf_counter() - started,
            "coverage": coverage(actual, forecasts.lower[:, 0], forecasts.upper[:, 0]).value,
            "width": float(np.mean(forecasts.upper[:, 0] - forecasts.lower[:, 0])),
            "rank": model.rank,
            "n_scored": len(slots),
        }
    return {"link_id": link.link_id, "methods": methods}


def select_links(links: dict[str, LinkSeries], names: str | None) -> list[LinkSeries]:
    """Return the named links, or those with counts on every day and a mean above 30."""
    if names:
        wanted = [name.strip() for name in names.split(",")]
        absent = [name for name in wanted if name not in links]
        if absent:
            raise MissingData(f"no link {', '.join(absent)}; there are {', '.join(sorted(links))}")
        return [links[name] for name in wanted]
    longest = max(len(link) for link in links.values())
    complete = [link for link in links.values() if len(link) == longest and link.gaps < link.grid.slots_per_day // 2]
    return [link for link in complete if float(np.nanmean(link.counts)) > MIN_MEAN]


def summarise(links: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Average over links: geometric means of ratios to pinned KR, plain means of the rest."""
    out: dict[str, dict[str, Any]] = {}
    base = np.array([link["methods"][PINNED]["rmse"] for link in links])
    ours = np.array([link["methods"]["KR_SML"]["rmse"] for link in links])
    for name in links[0]["methods"]:
        figures = [link["methods"][name] for link in links]
        errors = np.array([figure["rmse"] for figure in figures])
        out[name] = {
            "to_pinned_kr": float(np.exp(np.mean(np.log(errors / base)))),
            "ahead_of_pinned_kr": int((errors < base).sum()),
            "kr_sml_ahead": int((ours < errors).sum()),
        }
        for measure in (*MEASURES, "seconds", "coverage", "width", "rank"):
            if measure in figures[0]:
                out[name][measure] = float(np.mean([figure[measure] for figure in figures]))
    covered = np.array([link["methods"]["KR_SML"]["coverage"] for link in links])
    scored = np.array([link["methods"]["KR_SML"]["n_scored"] for link in links])
    out["KR_SML"] |= {
        "coverage_of_all_counts": float(covered @ scored / scored.sum()),
        "links_covered_80": int((covered >= 0.8).sum()),
    }
    return out


def print_tables(console: Console, links: list[dict[str, Any]], summary: dict[str, dict[str, Any]]) -> None:
    n = len(links)
    table = Table(title=f"{n} links: test RMSE to pinned KR (geometric mean), and means over links")
    headings = ("method", "RMSE : KR", "ahead of KR", "KR_SML ahead", "RMSE", "WAPE", "MARE", "GEH < 5", "s a link")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, row in sorted(summary.items(), key=lambda item: item[1]["to_pinned_kr"]):
        wins = [f"{row['ahead_of_pinned_kr']} of {n}", "" if name == "KR_SML" else f"{row['kr_sml_ahead']} of {n}"]
        means = [f"{row['rmse']:.2f}", f"{row['wape']:.3f}", f"{row['mare']:.3f}", f"{row['geh']:.3f}"]
        table.add_row(name, f"{row['to_pinned_kr']:.4f}", *wins, *means, f"{row['seconds']:.2f}")
    console.print(table)
    ours = summary["KR_SML"]
    console.print(
        f"KR_SML's 90 % interval holds {ours['coverage_of_all_counts']:.1%} of all test counts, at least 80 % on "
        f"{ours['links_covered_80']} of {n} links; mean width {ours['width']:.1f} vehicles, "
        f"mean rank {ours['rank']:.1f}",
        highlight=False,
    )
    names = (PINNED, "KR_PCA", "MLKR, to the end", "MLKR, stopped", "LightGBM", "profile", "KR_SML")
    detail = Table("link", *names, "in interval", title="test RMSE")
    for link in links:
        figures = [f"{link['methods'][name]['rmse']:.2f}" for name in names]
        detail.add_row(link["link_id"], *figures, f"{link['methods']['KR_SML']['coverage']:.1%}")
    console.print(detail)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="count file (default: the SCATS file in FLOWCAST_TEST_DATA)")
    parser.add_argument("--train-days", type=int, default=22, help="days to learn from (22); the rest are for testing")
    parser.add_argument("--links", help="comma-separated ids (default: whole links with a mean above 30)")
    parser.add_argument("--sample", type=int, help="number of links to sample, evenly spread (default: all)")
    parser.add_argument("--network", action="store_true", help="also measure the network, its baselines and ENSEMBLE")
    parser.add_argument("--ablation", action="store_true", help="with --network: leave out each part of its context")
    parser.add_argument(
        "--disturb",
        type=int,
        nargs="+",
        metavar="SEED",
        help="with --network: disturb every third link in the test days, and measure only ENSEMBLE and its experts",
    )
    parser.add_argument(
        "--pems-lane", action="store_true", help="measure KR_SML on a freeway lane, beside the published"
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one per core)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if options.disturb and not options.network:
        parser.error("--disturb is for --network")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    notes = Console(stderr=True, highlight=False)
    console = Console(width=None if sys.stdout.isatty() else 150)
    try:
        if options.pems_lane:
            lane = pems_lane.measure(options.data or data_directory("traffic") / pems_lane.FILE)
            return _finish(options, lane, [lane], lambda: pems_lane.print_lane(console, lane))
        file = options.data or data_directory("traffic") / "scats_2006-10.csv.gz"
        with CountReader(file) as reader:
            everyone = series_of_files(reader)
        links = select_links(everyone, options.links)
    except (MissingData, CountFileError) as problem:
        notes.print(f"accuracy: {problem}", style="red", soft_wrap=True)
        return 2
    if options.sample:
        links = [links[i] for i in np.linspace(0, len(links) - 1, min(options.sample, len(links))).astype(int)]
    names = [link.link_id for link in links]
    if options.disturb:
        by_seed = ensemble_report.measure_disturbed(
            everyone, names, options.train_days, options.disturb, options.jobs, notes.print
        )

        def print_all() -> None:
            for seed, of_seed in by_seed.items():
                ensemble_report.print_ensemble(console, of_seed, f"disturbed with seed {seed}")

        return _finish(options, {"disturbed": by_seed}, list(by_seed.values()), print_all)
    results = evaluate_all(links, options, notes)
    report: dict[str, Any] = {"summary": summarise(results), "links": results}
    if options.network:
        report["network"] = network_accuracy.measure(
            everyone,
            names,
            options.train_days,
            results,
            pinned=PINNED,
            jobs=options.jobs,
            with_ablation=options.ablation,
            report_progress=notes.print,
        )

    def print_report() -> None:
        print_tables(console, results, report["summary"])
        if options.network:
            network_accuracy.print_report(console, report["network"], PINNED)

    limited = [report["network"]["ensemble"]] if options.network else []
    return _finish(options, report, limited, print_report)


def evaluate_all(links: list[LinkSeries], options: argparse.Namespace, notes: Console) -> list[dict[str, Any]]:
    """Measure all methods on lags, several links at once."""
    results: list[dict[str, Any]] = []
    with (
        joblib.parallel_config(backend="loky", inner_max_num_threads=1),
        Progress(console=notes, transient=True) as bar,
    ):
        task = bar.add_task("links", total=len(links))
        calls = (joblib.delayed(evaluate)(link, options.train_days) for link in links)
        for result in joblib.Parallel(n_jobs=options.jobs, return_as="generator")(calls):
            results.append(result)
            bar.update(task, advance=1)
            if not notes.is_terminal and (len(results) % 10 == 0 or len(results) == len(links)):
                notes.print(f"{len(results)} of {len(links)} links done")
    return results


def _finish(
    options: argparse.Namespace,
    report: dict[str, Any],
    limited: list[dict[str, Any]],
    print_report: Callable[[], object],
) -> int:
    """Print a report, and return 1 if a limit of one of its parts does not hold, else 0."""
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_report()
    return 0 if all(limit.holds for part in limited for limit in part["limits"]) else 1


if __name__ == "__main__":
    sys.exit(main())
