"""NETWORK and `best` on the test days, learnt from the training days by the product's own training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries, network_calendar
from app.evaluation.days import DaySplit, cut_out
from app.evaluation.plan import BEST, NETWORK, PROFILE, EvaluationPlan
from app.evaluation.protocol import DECIMALS, MethodRun, SlotForecasts, one_ahead
from app.links.tables import folder_name
from app.settings import Settings
from app.training.aligned_counts import LinkTopology, by_network, examined
from app.training.compare import BEFORE, aggregate_name, best_without_candidates, decide_experts
from app.training.link_training import LinkTraining, expert_folder
from app.training.network_stage import NetworkStage, NetworkTraining, execute_stage
from app.training.train_model import train_model
from model.aggregation.intervals import IntervalFactors
from model.aggregation.state import Aggregation
from model.aggregation.warm_up import warm_up
from model.artifacts.link_models import LinkModel, load_model
from model.link_model.trained_model import TrainedModel
from model.network_model.network import NetworkModel, context_source

Array = NDArray[np.float64]
ReportProgress = Callable[[str, int, int], object]
NO_MODEL = "none"  # of the trained experts: the profile, the last count and the scaled profile are aggregated
MARGIN = float(Settings.model_fields["retrain_margin"].default)


class LinkNetwork(NamedTuple):
    """The network of a link: its folder, and the link's context on the test slots if the network has the link."""

    stage: Path
    context: tuple[Array, Array] | None  # columns (n_slots, n_columns), and the profile in the link's unit (n_slots,)
    seconds: float  # the link's share of learning the network


def learn_networks(
    links: Sequence[LinkSeries],
    plan: EvaluationPlan,
    topology: Mapping[str, LinkTopology],
    folder: Path,
    report: ReportProgress | None = None,
) -> tuple[dict[str, LinkNetwork], list[str]]:
    """Learn the networks of links from their training days; return them by link, and notes on links without one."""
    networks: dict[str, LinkNetwork] = {}
    notes = []
    for number, group in enumerate(_groups(links, plan)):
        started = time.perf_counter()
        stage = folder / str(number) / "stage"
        contexts, failed = _learn(stage, group, plan, topology, report)
        share = (time.perf_counter() - started) / len(group)
        ids = [split.link.link_id for split in group]
        networks |= {link_id: LinkNetwork(stage, contexts.get(link_id), share) for link_id in ids}
        if failed:
            notes.append(f"{NETWORK} is left out for {', '.join(ids)}: {failed}")
    return networks, notes


def _groups(links: Sequence[LinkSeries], plan: EvaluationPlan) -> Iterator[list[DaySplit]]:
    """Return the links of each network with the same days: other links' training days must not be test days of one."""
    for network in by_network(links).values():
        by_first_day: dict[object, list[DaySplit]] = {}
        for link in network:
            split = cut_out(link, plan)
            by_first_day.setdefault(split.first_day, []).append(split)
        yield from by_first_day.values()


def _learn(
    stage: Path,
    group: Sequence[DaySplit],
    plan: EvaluationPlan,
    topology: Mapping[str, LinkTopology],
    report: ReportProgress | None,
) -> tuple[dict[str, tuple[Array, Array]], str]:
    """Learn one network; return the context of its links on the test slots, or why there is none."""
    execute_stage(stage, [split.training_link for split in group], topology, _training(plan), report=report)
    read = NetworkStage.read(stage)
    assert read is not None  # it is written whatever goes wrong
    ids = [split.link.link_id for split in group]
    models = {link_id: model for link_id in ids if (model := read.model(link_id)) is not None}
    if not models:
        return {}, read.failed or "none of the links has enough counts"
    link, cut = group[0].link, group[0].cut
    network = next(iter(models.values())).network
    calendar = network_calendar(link.grid, link.zone, link.first, len(link), network.holidays)
    counts = np.stack([split.link.counts for split in group])
    source = context_source(network, counts, calendar, np.arange(len(group)), None)
    rows = source.rows(np.arange(cut, len(link)), 1)
    return {link_id: (rows.columns[ids.index(link_id)], rows.profile[ids.index(link_id)]) for link_id in models}, ""


def _training(plan: EvaluationPlan) -> NetworkTraining:
    return NetworkTraining.of(BEST, {"lags": plan.lags, "held_out_days": plan.held_out_days})


def run_network(network: LinkNetwork, split: DaySplit) -> MethodRun:
    """Forecast the test slots by a link's network model, if it has one."""
    started = time.perf_counter()
    stage = NetworkStage.read(network.stage)
    model = None if stage is None else stage.model(split.link.link_id)
    forecasts = SlotForecasts.missing(len(split.test_slots)) if model is None else _forecast(model, network, split)
    return MethodRun(network.seconds + time.perf_counter() - started, SlotForecasts.missing(split.cut), forecasts)


def run_best(network: LinkNetwork, split: DaySplit, plan: EvaluationPlan, profile: MethodRun) -> MethodRun:
    """Forecast the test slots by what `best` chooses on the held-out training days: experts, or the profile."""
    started = time.perf_counter()
    folder = network.stage.parent / folder_name(split.link.link_id)
    abouts, starts = train_model(LinkTraining(split.training_link, _training(plan), stage=network.stage), folder)
    about = next(iter(abouts.values()))
    decisions = decide_experts(about["held_out"], abouts, "if_better", MARGIN, young=bool(about["young"]))
    activated = [algorithm for algorithm, decision in decisions.items() if decision.activate]
    chosen, forecasts = PROFILE, profile.test
    if activated or best_without_candidates(about["held_out"]) == BEFORE:
        start = Aggregation.from_json(starts[aggregate_name(activated, abouts)])
        models = {}
        for number, algorithm in enumerate(abouts):
            model, _ = load_model(expert_folder(folder, algorithm) if number else folder)
            if algorithm in activated:
                models[algorithm] = model
        chosen, forecasts = " and ".join(sorted(activated)) or NO_MODEL, _aggregate(models, start, network, split)
    seconds = network.seconds + time.perf_counter() - started
    return MethodRun(seconds, SlotForecasts.missing(split.cut), forecasts, chosen=chosen)


def _aggregate(
    models: Mapping[str, LinkModel], start: Aggregation, network: LinkNetwork, split: DaySplit
) -> SlotForecasts:
    """Forecast the test slots one ahead by the aggregate of experts, whose weights go on from the held-out days."""
    expected = {name: _expected(model, network, split) for name, model in models.items()}
    bands = next((model.bands for model in models.values() if model.bands is not None), None)
    sound = split.series.without(examined(split.link, None).suspect)
    replayed = warm_up(split.series, sound, split.cut, [expected], bands, start.rows(None))
    near = replayed.expected[0, :, 0], replayed.below[0, :, 0], replayed.above[0, :, 0]
    lower, upper = IntervalFactors(replayed.factors.factors[0, :, 0]).around(*near)
    return SlotForecasts(*(np.round(values, DECIMALS) for values in (near[0], lower, upper)))


def _expected(model: LinkModel, network: LinkNetwork, split: DaySplit) -> Array:
    """Return a model's forecasts of the test slots from the true past, (n_slots, n_horizons)."""
    if isinstance(model, TrainedModel):
        return model.expected_counts(split.windows(split.test_slots))
    assert network.context is not None
    columns, profile = network.context
    return model.expected_counts([columns], profile[:, None])


def _forecast(model: NetworkModel, network: LinkNetwork, split: DaySplit) -> SlotForecasts:
    """Forecast the test slots one ahead; where the context has too many gaps, by the profile."""
    assert model.bands is not None
    expected = _expected(model, network, split)[:, 0]
    return one_ahead(np.where(np.isnan(expected), split.profile[split.cut :], expected), model.bands)
