"""Evaluate links in parallel: counts in, figures and pictures out, each link's failure its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import quote

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.counts.series import LinkSeries
from app.evaluation.days import Days, cut_out
from app.evaluation.figures import draw_figure4
from app.evaluation.in_network import InNetwork, absent, run_best, run_network
from app.evaluation.measures import Yardsticks, measure
from app.evaluation.plan import BEST, COMPARED, METHODS, NETWORK, PROFILE, EvaluationPlan
from app.evaluation.protocol import Run, run, run_profile
from app.evaluation.report import Forecasts, LinkResult, MethodResult, Metric, NotEvaluated, Slots, Values
from app.evaluation.span import Span
from app.training.link_training import data_fingerprint
from app.training.parallel import run_parallel

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
