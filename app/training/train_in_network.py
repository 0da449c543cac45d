"""Train the network model of a link, and the other experts beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from app.counts.series import LinkSeries, as_count_series
from app.registry.ensembles import AGGREGATION
from app.training.active_forecasts import aggregate, forecast_active, forecast_served, whole
from app.training.aligned_counts import examined
from app.training.compare import aggregate_name
from app.training.link_training import (
    EXPERTS,
    LinkTraining,
    TrainedModels,
    describe,
    expert_folder,
    figures_as_json,
    held_out_start,
    learnt_from,
)
from app.training.network_stage import BASE, BEST, NetworkStage, NetworkTraining
from model.artifacts.link_models import save_model
from model.artifacts.network_models import save_network_model
from model.error_measures import Measure
from model.estimators.descent import OnEvaluation
from model.estimators.kernel import Array
from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.link_model.series import CountSeries
from model.link_model.training import (
    NotEnoughCounts,
    TrainingResult,
    continuations,
    cross_coverage,
    forecast_methods,
    measure_methods,
    train,
)
from model.network_model.network import ALGORITHM as NETWORK

Figures = dict[str, dict[str, Measure]]
KR_SML = "KR_SML"


class TrainingInNetwork:
    """The training of a link's network model, or of all its experts."""

    def __init__(
        self,
        training: LinkTraining,
        how: NetworkTraining,
        stage: NetworkStage,
        folder: Path,
        on_evaluation: OnEvaluation | None,
    ) -> None:
        self._training, self._how, self._stage = training, how, stage
        self._folder, self._on_evaluation = folder, on_evaluation
        self._link, self._series = training.series, as_count_series(training.series)
        self._health = examined(self._link, training.capacity)
        self._sound = self._series.without(self._health.suspect)
        self._held_out = held_out_start(self._link, how.alone)
        self._draft = stage.model(self._link.link_id)
        self._forecasts = stage.forecasts(self._link)
        self._active = forecast_active(training, stage, self._held_out)
        self._served = forecast_served(training, self._active, self._held_out)

    def train(self) -> TrainedModels:
        """Train the network model, or all experts, and write their artifacts."""
        missing = "" if self._draft is not None else self._stage.failed or "the network has no counts of it"
        if self._how.algorithm == BEST:
            return self._train_experts(missing)
        if missing:
            raise NotEnoughCounts(missing)
        forecasts, young = self._network_methods()
        forecasts["candidate"] = forecasts.pop(NETWORK)
        figures = self._measured(forecasts)
        own = figures.pop("candidate")
        about = self._save_network(self._folder, NETWORK, own, figures, self._kept(young=young))
        return TrainedModels({NETWORK: about}, {})

    def _train_experts(self, missing: str) -> TrainedModels:
        """Train the network model and KR_SML; the one that was better on the held-out slots comes first."""
        alone: TrainingResult | None = None
        try:
            alone = self._train_alone({} if missing else self._one_ahead_of_network())
            forecasts, young = dict(alone.forecasts), False
            forecasts[KR_SML] = forecasts.pop("candidate")
        except NotEnoughCounts:
            if missing:
                raise
            forecasts, young = self._network_methods()
        figures = self._measured(forecasts)
        methods = [] if missing else [_best(figures, (NETWORK, BASE))]  # at most one of each algorithm
        methods += [] if alone is None else [KR_SML]
        experts = {KR_SML if method == KR_SML else NETWORK: method for method in methods}
        aggregates, starts = self._aggregate(experts, alone)
        figures = self._measured(forecasts | aggregates)
        compared = [method for method in (NETWORK, BASE, KR_SML) if method in figures]
        reason = _reason(figures, compared) + (f"; there is no network model: {missing}" if missing else "")
        kept = self._kept(young=young, reason=reason) | {
            EXPERTS: sorted(experts),
            AGGREGATION: starts[aggregate_name(experts, experts)],
        }
        best = _best(figures, methods)
        ordered = sorted(experts, key=lambda algorithm: experts[algorithm] != best)
        abouts = {}
        for algorithm in reversed(ordered):  # the link's own folder last: what is there is whole
            folder = self._folder if algorithm == ordered[0] else expert_folder(self._folder, algorithm)
            if algorithm == NETWORK:
                method = experts[algorithm]
                abouts[algorithm] = self._save_network(folder, method, figures[method], figures, kept)
            else:
                assert alone is not None
                abouts[algorithm] = self._save_alone(folder, alone, figures, kept)
        return TrainedModels({algorithm: abouts[algorithm] for algorithm in ordered}, starts)

    def _train_alone(self, others: Mapping[str, Array]) -> TrainingResult:
        plan, capacity = self._how.alone, self._training.capacity
        return train(self._series, plan, capacity, self._link.suspect, {**others, **self._served}, self._on_evaluation)

    def _aggregate(
        self, experts: Mapping[str, str], alone: TrainingResult | None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        """Return the held-out forecasts, one slot ahead, of the aggregates with any of the experts, and their weights.

        Where a new expert is left out, the active model of its algorithm is in the aggregate, if there is one.
        """
        new, bands = {}, None
        for algorithm, method in experts.items():
            if algorithm == NETWORK:
                assert self._draft is not None
                new[algorithm], bands = self._forecasts_of(method), self._draft.bands
            else:
                assert alone is not None
                new[algorithm] = whole(alone.held_out_expected, self._held_out)
                bands = bands or alone.model.bands
        chosen = list(chain.from_iterable(combinations(experts, n) for n in range(len(experts) + 1)))
        sets = [{**self._active, **{algorithm: new[algorithm] for algorithm in one}} for one in chosen]
        replayed = aggregate(self._training, sets, self._held_out, bands)
        names = [aggregate_name(one, experts) for one in chosen]
        states = [replayed.state.rows(row) for row in range(len(sets))]
        return (
            dict(zip(names, replayed.expected[:, :, 0], strict=True)),
            {name: state.as_json() for name, state in zip(names, states, strict=True)},
        )

    def _save_alone(
        self, folder: Path, alone: TrainingResult, figures: Figures, kept: dict[str, Any]
    ) -> dict[str, Any]:
        own = figures[KR_SML] | {"coverage": alone.held_out["candidate"]["coverage"]}
        described = alone._replace(held_out=figures | {"candidate": own})
        about = describe(self._link, self._training.capacity, self._how.alone, described) | kept
        save_model(folder, alone.model, about)
        return about

    def _save_network(
        self, folder: Path, method: str, own: dict[str, Measure], figures: Figures, kept: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the network model, or its base alone, with its own figures and those of others."""
        model = self._draft
        assert model is not None
        if method == BASE:  # the network model without its memories, within bands of its own errors
            model = replace(model, shares=np.zeros(2), bands=self._base_bands() or model.bands)
        figures = figures | {"candidate": own | {"coverage": self._coverage(method)}}
        about = {
            **learnt_from(self._link, self._training.capacity, self._health),
            "plan": self._how.as_json(),
            "mu": self._stage.facts["mu"],
            "n_iter": self._stage.facts["n_iter"],
            "rank": model.rank,
            "held_out": figures_as_json(figures),
            "network": self._stage.network,
            **kept,
        }
        save_network_model(folder, model, self._stage.network, about)
        return about

    def _kept(self, *, young: bool, reason: str = "") -> dict[str, Any]:
        """Return what is kept with a model that was trained in a network alone."""
        return {"training": self._training.key, "young": young} | ({"chosen": reason} if reason else {})

    def _forecasts_of(self, method: str) -> Array:
        forecasts = self._forecasts.get(method)
        return np.full((len(self._link), 1), np.nan) if forecasts is None else forecasts

    def _one_ahead_of_network(self) -> dict[str, Array]:
        return {method: self._forecasts_of(method)[:, 0] for method in (NETWORK, BASE)}

    def _network_methods(self) -> tuple[dict[str, Array], bool]:
        """Return the held-out forecasts of the network beside KR, profile and last week; of a young link those it has.

        A young link's profile is that of the days before each.
        """
        others = self._one_ahead_of_network() | self._served
        plan, capacity = self._how.alone, self._training.capacity
        with suppress(NotEnoughCounts):
            return forecast_methods(self._series, others, plan, capacity, self._link.suspect), False
        methods = others | {"profile": _daily_profile(self._sound, self._link), "last_week": self._series.last_week()}
        return {method: expected[self._held_out :] for method, expected in methods.items()}, True

    def _measured(self, forecasts: Mapping[str, Array]) -> Figures:
        return measure_methods(self._series.counts[self._held_out :], forecasts, 1440 / self._series.slots_per_day)

    def _coverage(self, method: str) -> Measure:
        """Measure coverage as for a link trained by itself: each held-out day within the other days' bands."""
        forecasts = self._forecasts.get(method)
        if forecasts is None:
            return Measure(None, 0)
        sound = self._sound.counts
        slots = np.flatnonzero(~np.isnan(forecasts[:, 0]) & ~np.isnan(sound))
        slots = slots[slots >= self._held_out]
        return cross_coverage(forecasts[slots, :1], sound[slots, None], slots, self._series, self._how.network.level)

    def _base_bands(self) -> Bands | None:
        forecasts = self._forecasts[BASE]
        came = continuations(self._sound.counts, np.arange(len(forecasts)), forecasts.shape[1])
        with suppress(ValueError):  # too few errors; those of the whole model stand in
            return Bands.learn(forecasts, came, self._how.network.level)
        return None


def _daily_profile(sound: CountSeries, link: LinkSeries) -> Array:
    """Return what the link's own profile, of the days before each, expects of its slots; NaN on its first day."""
    day = link.calendar().day
    expected = np.full(len(sound), np.nan)
    for one in np.unique(day):
        before, today = int(np.searchsorted(day, one)), day == one
        past = sound.head(before)
        if not np.isnan(past.counts).all():
            profile = Profile.learn(past.counts, past.weekday, past.slot_of_day, past.slots_per_day)
            expected[today] = profile.at(sound.weekday[today], sound.slot_of_day[today])
    return expected


def _errors(figures: Figures, methods: Sequence[str]) -> dict[str, float]:
    """Return the RMSE of the methods that have one."""
    errors = {method: figures[method]["rmse"].value for method in methods}
    return {method: error for method, error in errors.items() if error is not None}


def _best(figures: Figures, methods: Sequence[str]) -> str:
    """Return the method with the smallest RMSE; the first of equals, or where none has an error."""
    known = _errors(figures, methods)
    return min(known, key=lambda method: known[method]) if known else methods[0]


def _reason(figures: Figures, methods: Sequence[str]) -> str:
    """Return why a method comes first."""
    best, known = _best(figures, methods), _errors(figures, methods)
    if not known:
        return f"{best}: there was no held-out slot to choose by"
    others = ", ".join(f"{method} {error:.4g}" for method, error in known.items() if method != best)
    beside = f", beside {others}" if others else ""
    return f"{best}: RMSE {known[best]:.4g} on the held-out slots{beside}"
