"""Evaluate links in parallel: counts in, figures and pictures out, each link's failure its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import quote

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.counts.series import LinkSeries
from app.evaluation.days import Days, Span, cut_out
from app.evaluation.in_network import InNetwork, absent, run_best, run_network
from app.evaluation.measures import Yardsticks, measure
from app.evaluation.plan import BEST, COMPARED, METHODS, NETWORK, PROFILE, EvaluationPlan
from app.evaluation.protocol import Run, run, run_profile
from app.evaluation.report import Forecasts, LinkResult, MethodResult, Metric, NotEvaluated, Slots, Values
from app.training.link_training import data_fingerprint
from app.training.parallel import run_parallel

MOST_DAY_LABELS = 5
COLUMNS = 4


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


def _as_array(values: list[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _midnights(local_starts: list[str]) -> list[tuple[int, str]]:
    """Return where local days begin, and their names; of many days only every few."""
    days: dict[str, int] = {}
    for at, start in enumerate(local_starts):
        days.setdefault(start[:10], at)
    every = -(-len(days) // MOST_DAY_LABELS)
    named = [(at, datetime.fromisoformat(day).strftime("%a %d %b")) for day, at in days.items()]
    return named[::every]


Array = NDArray[np.float64]


class Evaluated(NamedTuple):
    """A link's figures, and its Figure 4 as a PNG."""

    result: LinkResult
    picture: bytes


def evaluate_links(
    links: Iterable[LinkSeries], plan: EvaluationPlan, networks: Mapping[str, InNetwork], *, jobs: int = -1
) -> Iterator[Evaluated | NotEvaluated]:
    """Evaluate links in parallel processes and give the outcomes as they come."""
    calls = (joblib.delayed(evaluate_link)(link, plan, networks.get(link.link_id)) for link in links)
    yield from run_parallel(calls, jobs=jobs)


def evaluate_link(link: LinkSeries, plan: EvaluationPlan, network: InNetwork | None = None) -> Evaluated | NotEvaluated:
    """Run all methods on one link, NETWORK and `best` where it is in a network; a failure becomes its reason."""
    try:
        with threadpool_limits(limits=1):  # joblib sees to it only when there are several processes
            result = _evaluate(cut_out(link, plan), plan, network)
            return Evaluated(result, draw_figure4(result))
    except Exception as problem:  # one link's failure must not stop the others
        reason = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
        return NotEvaluated(link.link_id, reason)


def figure_name(link_id: str) -> str:
    """Return the file name of a link's Figure 4: its id, but for what a file name cannot hold."""
    return f"figure4-{quote(link_id, safe='')}.png"


def _runs(days: Days, span: Span, plan: EvaluationPlan, network: InNetwork | None) -> dict[str, Run]:
    runs: dict[str, Run] = {method: run(method, span, plan) for method in METHODS}
    runs[PROFILE] = profile = run_profile(span, plan.training_plan("KR_SML").level)
    if network is not None:
        runs[NETWORK] = run_network(network, span, days.link.link_id)
        runs[BEST] = run_best(network, span, days, plan, profile)
    return runs


def _evaluate(days: Days, plan: EvaluationPlan, network: InNetwork | None) -> LinkResult:
    link = days.link
    span = Span.of(link, days.cut, plan.lags)
    runs = _runs(days, span, plan, network)
    methods = [_method_result(method, runs.get(method) or absent(span), span, plan) for method in COMPARED]
    last_train = days.first_day + timedelta(days=plan.train_days - 1)
    last_test = last_train + timedelta(days=plan.test_days)
    starts = [link.grid.start(link.first + int(slot)) for slot in span.test_slots]
    return LinkResult(
        link_id=link.link_id,
        zone=link.zone.key,
        train_from=days.first_day.isoformat(),
        train_to=last_train.isoformat(),
        test_from=(last_train + timedelta(days=1)).isoformat(),
        test_to=last_test.isoformat(),
        mean_count=float(np.nanmean(span.learnt.counts)),
        d=len(span.window),
        rank=methods[METHODS.index("KR_SML")].rank or 0,
        pca_d=methods[METHODS.index("KR_PCA")].rank or 0,
        data_fingerprint=data_fingerprint(link),
        figure=figure_name(link.link_id),
        methods=methods,
        test_slots=Slots(
            slot_starts=[start.strftime("%Y-%m-%dT%H:%M:%SZ") for start in starts],
            local_starts=[start.astimezone(link.zone).strftime("%Y-%m-%dT%H:%M") for start in starts],
            counts=_rounded(span.series.counts[span.cut :]),
        ),
    )


def _method_result(method: str, run: Run, span: Span, plan: EvaluationPlan) -> MethodResult:
    counts, minutes = span.series.counts, 1440 / span.series.slots_per_day
    in_training = Yardsticks(span.usual_without_own_day(), span.learnt.last_week())
    in_test = Yardsticks(span.usual[span.cut :], span.last_week()[span.cut :])
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
        train=measure(counts[: span.cut], run.train, in_training, minutes),
        test=measure(counts[span.cut :], run.test, in_test, minutes),
        metric=None if run.components is None else _metric(run.components, span),
        forecasts=Forecasts(*(_rounded(values) for values in run.test)),
        chosen=run.chosen,
    )


def _metric(components: Array, span: Span) -> Metric:
    spreads = np.linalg.svd(components, compute_uv=False) ** 2
    eigenvalues = np.concatenate([spreads, np.zeros(len(span.window) - len(spreads))])
    return Metric(np.sum(components**2, axis=0).tolist(), eigenvalues.tolist())


def _rounded(values: Array) -> Values:
    return [None if np.isnan(value) else round(float(value), 2) for value in values]
