"""NETWORK and `best` on the test days, learnt from the training days by the product's own training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.network_calendar import network_calendar
from app.counts.series import LinkSeries
from app.evaluation.days import Days, Span, cut_out
from app.evaluation.plan import BEST, NETWORK, PROFILE, EvaluationPlan
from app.evaluation.protocol import Run, SlotForecasts, one_ahead
from app.links.tables import folder_name
from app.settings import Settings
from app.training.aligned_counts import LinkTopology, by_network
from app.training.compare import decide
from app.training.link_training import LinkTraining
from app.training.network_stage import NetworkStage, NetworkTraining, execute_stage
from app.training.train_model import train_model
from model.artifacts.link_models import load_model
from model.link_model.trained_model import TrainedModel
from model.network_model.network import NetworkModel, source_of

Array = NDArray[np.float64]
Report = Callable[[str, int, int], object]
MARGIN = float(Settings.model_fields["retrain_margin"].default)


class InNetwork(NamedTuple):
    """A link's place in its network: where that lies, and the link's context on the test slots if there is one."""

    phase: Path
    context: tuple[Array, Array] | None  # columns (n_slots, n_columns), and the profile in the link's unit (n_slots,)
    seconds: float  # the link's share of learning the network


@dataclass
class Networks:
    """The networks of an evaluation, by the ids of their links, and notes on links that have none."""

    of: dict[str, InNetwork] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def learn_networks(
    links: Sequence[LinkSeries],
    plan: EvaluationPlan,
    whereabouts: Mapping[str, LinkTopology],
    folder: Path,
    report: Report | None = None,
) -> Networks:
    """Learn the networks of links from their training days, each in a folder of its own."""
    found = Networks()
    for number, group in enumerate(_groups(links, plan)):
        started = time.perf_counter()
        phase = folder / str(number) / "phase"
        contexts, failed = _learn(phase, group, plan, whereabouts, report)
        share = (time.perf_counter() - started) / len(group)
        for days in group:
            link_id = days.link.link_id
            found.of[link_id] = InNetwork(phase, contexts.get(link_id), share)
        if failed:
            ids = ", ".join(days.link.link_id for days in group)
            found.notes.append(f"{NETWORK} is left out for {ids}: {failed}")
    return found


def _groups(links: Sequence[LinkSeries], plan: EvaluationPlan) -> Iterator[list[Days]]:
    """Return the links of each network with the same days: other links' training days must not be test days of one."""
    for network in by_network(links).values():
        alike: dict[object, list[Days]] = {}
        for link in network:
            days = cut_out(link, plan)
            alike.setdefault(days.first_day, []).append(days)
        yield from alike.values()


def _learn(
    phase: Path,
    group: Sequence[Days],
    plan: EvaluationPlan,
    whereabouts: Mapping[str, LinkTopology],
    report: Report | None,
) -> tuple[dict[str, tuple[Array, Array]], str]:
    """Learn one network; return the context of its links on the test slots, or why there is none."""
    execute_stage(phase, [days.learnt for days in group], whereabouts, _training(plan), report=report)
    read = NetworkStage.read(phase)
    assert read is not None  # it is written whatever goes wrong
    ids = [days.link.link_id for days in group]
    models = {link_id: model for link_id in ids if (model := read.model(link_id)) is not None}
    if not models:
        return {}, read.failed or "none of the links has enough counts"
    link, cut = group[0].link, group[0].cut
    network = next(iter(models.values())).network
    calendar = network_calendar(link.grid, link.zone, link.first, len(link), network.holidays)
    counts = np.stack([days.link.counts for days in group])
    source = source_of(network, counts, calendar, np.arange(len(group)), None)
    rows = source.rows(np.arange(cut, len(link)), 1)
    return {link_id: (rows.columns[ids.index(link_id)], rows.usual[ids.index(link_id)]) for link_id in models}, ""


def _training(plan: EvaluationPlan) -> NetworkTraining:
    return NetworkTraining.of(BEST, {"lags": plan.lags, "held_out_days": plan.held_out_days})


def run_network(place: InNetwork, span: Span, link_id: str) -> Run:
    """Forecast the test slots by a link's network model; none where the link has no network."""
    started = time.perf_counter()
    phase = NetworkStage.read(place.phase)
    model = None if phase is None else phase.model(link_id)
    forecasts = _nothing(len(span.test_slots)) if model is None else _forecast(model, place, span)
    return Run(place.seconds + time.perf_counter() - started, _nothing(span.cut), forecasts)


def run_best(place: InNetwork, span: Span, days: Days, plan: EvaluationPlan, profile: Run) -> Run:
    """Forecast the test slots by what `best` chooses on the held-out training days: a model, or the profile."""
    started = time.perf_counter()
    folder = place.phase.parent / folder_name(days.link.link_id)
    about = train_model(LinkTraining(days.learnt, _training(plan), stage=place.phase), folder)
    model, _ = load_model(folder)
    chosen, forecasts = model.algorithm, _forecast(model, place, span)
    if not decide(about["held_out"], "if_better", MARGIN, young=bool(about["young"])).activate:
        chosen, forecasts = PROFILE, profile.test
    return Run(place.seconds + time.perf_counter() - started, _nothing(span.cut), forecasts, chosen=chosen)


def _forecast(model: TrainedModel | NetworkModel, place: InNetwork, span: Span) -> SlotForecasts:
    """Forecast the test slots one ahead from the true past; where a context has too many gaps, by the profile."""
    assert model.bands is not None
    if isinstance(model, TrainedModel):
        return one_ahead(model.expected_counts(span.windows(span.test_slots))[:, 0], model.bands)
    assert place.context is not None
    columns, usual = place.context
    expected = model.expected_counts([columns], usual[:, None])[:, 0]
    return one_ahead(np.where(np.isnan(expected), span.usual[span.cut :], expected), model.bands)


def absent(span: Span) -> Run:
    """Return the run of a method that has nothing to say of a link."""
    return Run(0.0, _nothing(span.cut), _nothing(len(span.test_slots)))


def _nothing(slots: int) -> SlotForecasts:
    return SlotForecasts(*(np.full(slots, np.nan) for _ in range(3)))
