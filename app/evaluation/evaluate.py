"""Evaluate links in parallel processes; a failure concerns its link alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.counts.series import LinkSeries
from app.evaluation.days import Choice, DaySplit, cut_out
from app.evaluation.measures import MARE_FLOOR, measure, summarise
from app.evaluation.network_methods import LinkNetwork, run_best, run_network
from app.evaluation.plan import BEST, COMPARED, METHODS, NETWORK, PROFILE, EvaluationPlan
from app.evaluation.protocol import MethodRun, SlotForecasts, run, run_profile
from app.evaluation.report import (
    FORMAT,
    VERSION,
    LinkResult,
    MethodForecasts,
    MethodResult,
    Metric,
    NotEvaluated,
    Options,
    Report,
    ScoredSlots,
    Values,
)
from app.training.link_training import data_fingerprint
from app.training.parallel import run_parallel
from model.error_measures import GEH_LIMIT, GEH_SHARE
from model.link_model.lag_window import LagWindow

Array = NDArray[np.float64]

MOST_DAY_LABELS = 5
COLUMNS = 4


class Evaluated(NamedTuple):
    """A link's figures, and its Figure 4 as a PNG."""

    result: LinkResult
    picture: bytes


def evaluate_links(
    links: Iterable[LinkSeries], plan: EvaluationPlan, networks: Mapping[str, LinkNetwork], *, jobs: int = -1
) -> Iterator[Evaluated | NotEvaluated]:
    """Evaluate links in parallel processes and yield the outcomes as they come."""
    calls = (joblib.delayed(evaluate_link)(link, plan, networks.get(link.link_id)) for link in links)
    yield from run_parallel(calls, jobs=jobs)


def evaluate_link(
    link: LinkSeries, plan: EvaluationPlan, network: LinkNetwork | None = None
) -> Evaluated | NotEvaluated:
    """Run all methods on one link, NETWORK and `best` where it is in a network; a failure becomes its reason."""
    try:
        with threadpool_limits(limits=1):  # joblib does so only when there are several processes
            result = _evaluate(cut_out(link, plan), plan, network)
            return Evaluated(result, draw_figure4(result))
    except Exception as problem:  # one link's failure must not stop the others
        reason = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
        return NotEvaluated(link.link_id, reason)


def make_report(
    files: list[str],
    plan: EvaluationPlan,
    slot_minutes: int,
    choice: Choice,
    outcomes: list[Evaluated | NotEvaluated],
    seconds: float,
) -> tuple[Report, dict[str, bytes]]:
    """Return the report, links in order, and the pictures by file name."""
    done = sorted((o for o in outcomes if isinstance(o, Evaluated)), key=lambda o: o.result.link_id)
    failed = [outcome for outcome in outcomes if isinstance(outcome, NotEvaluated)]
    left_out = sorted([*choice.left_out, *failed], key=lambda link: link.link_id)
    links = [outcome.result for outcome in done]
    fingerprints = "".join(f"{link.link_id} {link.data_fingerprint}\n" for link in links)
    level = plan.training_plan("KR_SML").level
    report = Report(
        format=FORMAT,
        version=VERSION,
        flowcast_version=version("flowcast"),
        files=[_file_name(file) for file in files],
        data_fingerprint=hashlib.sha256(fingerprints.encode()).hexdigest(),
        protocol=plan.protocol,
        options=Options(
            train_days=plan.train_days,
            test_days=plan.test_days,
            first_day=plan.first_day.isoformat() if plan.first_day else None,
            links=plan.link_ids,
            sample=plan.sample,
            seed=None if plan.sample is None else plan.seed,
            lags=list(LagWindow(plan.lags).lags),
            neighbors=plan.neighbors_of("KR"),
            slot_minutes=slot_minutes,
            held_out_days=plan.held_out_days,
            held_out_days_reduced=plan.held_out_reduced,
            level=level,
            mare_floor=MARE_FLOOR,
            geh_limit=GEH_LIMIT,
            geh_share=GEH_SHARE,
        ),
        notes=choice.notes,
        summary=summarise(links, left_out, level),
        links=links,
        not_evaluated=left_out,
        seconds=seconds,
    )
    return report, {link.figure: outcome.picture for link, outcome in zip(links, done, strict=True)}


def _file_name(file: str) -> str:
    """Return a file's name without its folder, which means nothing elsewhere, as text that can be written."""
    return "standard input" if file == "-" else Path(file).name.encode(errors="replace").decode()


def figure_name(link_id: str) -> str:
    """Return the file name of a link's Figure 4: its id, with what a file name cannot hold quoted."""
    return f"figure4-{quote(link_id, safe='')}.png"


def _evaluate(split: DaySplit, plan: EvaluationPlan, network: LinkNetwork | None) -> LinkResult:
    link = split.link
    runs: dict[str, MethodRun] = {method: run(method, split, plan) for method in METHODS}
    runs[PROFILE] = profile = run_profile(split, plan.training_plan("KR_SML").level)
    absent = MethodRun(0.0, SlotForecasts.missing(split.cut), SlotForecasts.missing(len(split.test_slots)))
    runs[NETWORK] = absent if network is None else run_network(network, split)
    runs[BEST] = absent if network is None else run_best(network, split, plan, profile)
    methods = [_method_result(method, runs[method], split, plan) for method in COMPARED]
    last_train = split.first_day + timedelta(days=plan.train_days - 1)
    starts = [link.grid.start(link.first + int(slot)) for slot in split.test_slots]
    return LinkResult(
        link_id=link.link_id,
        zone=link.zone.key,
        train_from=split.first_day.isoformat(),
        train_to=last_train.isoformat(),
        test_from=(last_train + timedelta(days=1)).isoformat(),
        test_to=(last_train + timedelta(days=plan.test_days)).isoformat(),
        mean_count=float(np.nanmean(split.training.counts)),
        d=len(split.window),
        rank=methods[METHODS.index("KR_SML")].rank or 0,
        pca_d=methods[METHODS.index("KR_PCA")].rank or 0,
        data_fingerprint=data_fingerprint(link),
        figure=figure_name(link.link_id),
        methods=methods,
        test_slots=ScoredSlots(
            slot_starts=[start.strftime("%Y-%m-%dT%H:%M:%SZ") for start in starts],
            local_starts=[start.astimezone(link.zone).strftime("%Y-%m-%dT%H:%M") for start in starts],
            counts=_rounded(split.series.counts[split.cut :]),
        ),
    )


def _method_result(method: str, run: MethodRun, split: DaySplit, plan: EvaluationPlan) -> MethodResult:
    counts, cut, minutes = split.series.counts, split.cut, split.link.grid.slot_minutes
    return MethodResult(
        method=method,
        protocol="paper" if plan.under_the_paper(method) else "product",
        k=run.neighbors,
        bandwidth=None if run.neighbors is None else plan.training_plan("KR_SML").bandwidth,
        rank=None if run.components is None else len(run.components),
        mu=run.mu,
        n_iter=run.n_iter,
        level_share=run.level_share,
        seconds=run.seconds,
        train=measure(counts[:cut], run.train, split.profile_without_own_day(), split.training.last_week(), minutes),
        test=measure(counts[cut:], run.test, split.profile[cut:], split.last_week()[cut:], minutes),
        metric=None if run.components is None else _metric(run.components, split),
        forecasts=MethodForecasts(*(_rounded(values) for values in run.test)),
        chosen=run.chosen,
    )


def _metric(components: Array, split: DaySplit) -> Metric:
    spreads = np.linalg.svd(components, compute_uv=False) ** 2
    eigenvalues = np.concatenate([spreads, np.zeros(len(split.window) - len(spreads))])
    return Metric(np.sum(components**2, axis=0).tolist(), eigenvalues.tolist())


def _rounded(values: Array) -> Values:
    return [None if np.isnan(value) else round(float(value), 2) for value in values]


def draw_figure4(link: LinkResult) -> bytes:
    """Draw a link's test days as a PNG."""
    # Not at the top: matplotlib comes with the reports extra, and takes half a second to load.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(link.methods) // COLUMNS)
    figure = Figure(figsize=(24, 5.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True).ravel()
    for unused in panels[len(link.methods) :]:
        unused.set_visible(False)
    slots, midnights = np.arange(len(link.test_slots.counts)), _midnights(link.test_slots.local_starts)
    counts = _as_array(link.test_slots.counts)
    for axes, method in zip(panels, link.methods, strict=False):
        lower, upper = _as_array(method.forecasts.lower), _as_array(method.forecasts.upper)
        axes.fill_between(slots, lower, upper, color="tab:red", alpha=0.15, linewidth=0, label="interval")
        axes.plot(slots, counts, color="tab:blue", linewidth=1.1, label="count")
        expected = _as_array(method.forecasts.expected)
        axes.plot(slots, expected, "*", color="tab:red", markersize=4.5, markeredgewidth=0, label="forecast")
        error = "-" if method.test.rmse is None else f"{method.test.rmse:.2f}"
        axes.set_title(f"{method.method}: test RMSE {error}")
        axes.set_xticks([at for at, _ in midnights], [day for _, day in midnights])
        axes.set_xlim(0, max(len(slots) - 1, 1))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("vehicles a slot")
    panels[0].legend(loc="upper left", fontsize="small")
    figure.suptitle(f"Link {link.link_id}: test days, one slot ahead, local time ({link.zone})", parse_math=False)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=100)
    return out.getvalue()


def _as_array(values: Values) -> Array:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _midnights(local_starts: list[str]) -> list[tuple[int, str]]:
    """Return where local days begin, and their names; of many days only every few."""
    days: dict[str, int] = {}
    for at, start in enumerate(local_starts):
        days.setdefault(start[:10], at)
    every = -(-len(days) // MOST_DAY_LABELS)
    named = [(at, datetime.fromisoformat(day).strftime("%a %d %b")) for day, at in days.items()]
    return named[::every]
