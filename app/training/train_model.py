"""Train the model of a link by itself, in its network, or the best of these, or refresh its active model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from app.counts.series import LinkSeries, as_count_series
from app.training.aligned_counts import examined
from app.training.link_training import LinkTraining, active_reference, describe, figures_as_json, learnt_from
from app.training.network_stage import ACTIVE, BASE, BEST, NetworkStage, NetworkTraining
from model.artifacts.link_models import load_model, save_model
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
    compare,
    continuations,
    cross_coverage,
    measure_methods,
    train,
)
from model.link_model.training_plan import TrainingPlan
from model.network_model.network import ALGORITHM as NETWORK

Figures = dict[str, dict[str, Measure]]


def train_model(training: LinkTraining, folder: Path, on_evaluation: OnEvaluation | None = None) -> dict[str, Any]:
    """Train the model that a link's plan names and write its artifact; return what is kept with it, as JSON.

    An exception that ``on_evaluation`` raises ends the training.
    """
    if training.refused:
        raise ValueError(training.refused)
    plan, stage = training.plan, None if training.stage is None else NetworkStage.read(training.stage)
    if isinstance(plan, TrainingPlan):
        active = {} if stage is None else _active_one_ahead(stage.forecasts(training.series))
        result = _train_alone(training, plan, active, on_evaluation)
        about = describe(training.series, training.capacity, plan, result)
        save_model(folder, result.model, about)
        return about
    if training.stage is None:
        raise NotEnoughCounts("it has no counts")
    if stage is None:
        raise FileNotFoundError(f"there is no network stage in {training.stage}")
    if plan.refresh:
        return _refresh(training, plan, stage, folder)
    return _NetworkSelection(training, plan, stage, folder, on_evaluation).select()


def _train_alone(
    training: LinkTraining, plan: TrainingPlan, others: Mapping[str, Array], on_evaluation: OnEvaluation | None
) -> TrainingResult:
    link, references = training.series, active_reference(training)
    return train(as_count_series(link), plan, training.capacity, link.suspect, references, others, on_evaluation)


def _active_one_ahead(forecasts: Mapping[str, Array]) -> dict[str, Array]:
    """Return the forecasts of the link's active network model, if a stage computed them."""
    return {method: expected[:, 0] for method, expected in forecasts.items() if method == ACTIVE}


def _refresh(training: LinkTraining, plan: NetworkTraining, stage: NetworkStage, folder: Path) -> dict[str, Any]:
    """Write the artifact of a model that newer counts joined; its held-out figures are those it had before."""
    link, active = training.series, training.active
    model = stage.model(link.link_id)
    if model is None:
        raise NotEnoughCounts(stage.failed or "there is no network model of it, and no counts for one")
    before = {} if active is None else load_model(active.folder, fingerprint=active.fingerprint)[1]
    if before:
        learnt = before.get("refreshed", {}).get("learnt_to", before.get("trained_to"))
        refreshed = {"learnt_to": learnt, "held_out": f"carried over from the model learnt up to {learnt}"}
    else:
        refreshed = {"held_out": "not measured: new to the network"}
    nothing = np.full(1, np.nan)
    unknown = measure_methods(nothing, {"candidate": nothing, "profile": nothing}, link.grid.slot_minutes)
    about = {
        **learnt_from(link, training.capacity, examined(link, training.capacity)),
        "plan": before.get("plan", plan.as_json()),
        "mu": before.get("mu"),
        "n_iter": before.get("n_iter"),
        "rank": model.rank,
        "held_out": before.get("held_out") or figures_as_json(unknown),
        "network": stage.network,
        "young": not before,
        "refreshed": refreshed,
    }
    save_network_model(folder, model, stage.network, about)
    return about


class _NetworkSelection:
    """The choice of a link's model among those that its network and its own counts make."""

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
        self._held_out = max(0, len(self._link) - how.alone.held_out_days * self._series.slots_per_day)
        self._draft = stage.model(self._link.link_id)
        self._forecasts = stage.forecasts(self._link)
        self._active = _active_one_ahead(self._forecasts)

    def select(self) -> dict[str, Any]:
        """Choose a model and write its artifact."""
        missing = "" if self._draft is not None else self._stage.failed or "the network has no counts of it"
        if self._how.algorithm == BEST:
            return self._select_best(missing)
        if missing:
            raise NotEnoughCounts(missing)
        figures, young = self._network_figures({"candidate": self._one_ahead(NETWORK), BASE: self._one_ahead(BASE)})
        return self._save(NETWORK, figures, young=young)

    def _select_best(self, missing: str) -> dict[str, Any]:
        forecasts = {} if missing else {NETWORK: self._one_ahead(NETWORK), BASE: self._one_ahead(BASE)}
        try:
            alone = self._train_alone(self._how.alone, forecasts)
        except NotEnoughCounts:
            if missing:
                raise
            figures, young = self._network_figures(forecasts)
            winner, reason = _winner(figures, (NETWORK, BASE))
            figures["candidate"] = dict(figures[winner])
            return self._save(winner, figures, young=young, reason=reason)
        figures = alone.held_out | {"KR_SML": dict(alone.held_out["candidate"])}
        winner, reason = _winner(figures, (*forecasts, "KR_SML", "KR"))
        if missing:
            reason += f"; there is no network model: {missing}"
        if winner in forecasts:
            figures["candidate"] = dict(figures[winner])
            return self._save(winner, figures, reason=reason)
        plan = self._how.alone
        if winner == "KR":
            plan = replace(plan, algorithm="KR")
            alone = self._train_alone(plan, forecasts)
            figures["candidate"] = alone.held_out["candidate"]
        about = describe(self._link, self._training.capacity, plan, alone._replace(held_out=figures))
        about |= self._kept(young=False, reason=reason)
        save_model(self._folder, alone.model, about)
        return about

    def _train_alone(self, plan: TrainingPlan, forecasts: Mapping[str, Array]) -> TrainingResult:
        return _train_alone(self._training, plan, {**forecasts, **self._active}, self._on_evaluation)

    def _save(self, method: str, figures: Figures, *, young: bool = False, reason: str = "") -> dict[str, Any]:
        """Write the network model, or its base alone."""
        model = self._draft
        assert model is not None
        if method == BASE:  # the network model without its memories, within bands of its own errors
            model = replace(model, shares=np.zeros(2), bands=self._base_bands() or model.bands)
        figures["candidate"]["coverage"] = self._coverage(method)
        about = {
            **learnt_from(self._link, self._training.capacity, self._health),
            "plan": self._how.as_json(),
            "mu": self._stage.facts["mu"],
            "n_iter": self._stage.facts["n_iter"],
            "rank": model.rank,
            "held_out": figures_as_json(figures),
            "network": self._stage.network,
            **self._kept(young=young, reason=reason),
        }
        save_network_model(self._folder, model, self._stage.network, about)
        return about

    def _kept(self, *, young: bool, reason: str) -> dict[str, Any]:
        """Return what is kept with a model that was trained in a network alone."""
        return {"training": self._training.key, "young": young} | ({"chosen": reason} if reason else {})

    def _one_ahead(self, method: str) -> Array:
        forecasts = self._forecasts.get(method)
        return np.full(len(self._link), np.nan) if forecasts is None else forecasts[:, 0]

    def _network_figures(self, forecasts: dict[str, Array]) -> tuple[Figures, bool]:
        """Measure the network's forecasts beside KR, profile and last week; of a young link beside those it has."""
        forecasts, link, plan = forecasts | self._active, self._link, self._how.alone
        references = active_reference(self._training)
        try:
            return compare(self._series, forecasts, plan, self._training.capacity, link.suspect, references), False
        except NotEnoughCounts:
            return self._young_figures(forecasts), True

    def _young_figures(self, forecasts: dict[str, Array]) -> Figures:
        """Measure day by day, against the link's own profile of the days before each."""
        slots = np.arange(self._held_out, len(self._link))
        profile = _daily_profile(self._sound, self._link)
        methods = forecasts | {"profile": profile, "last_week": self._series.last_week()}
        methods = {method: expected[slots] for method, expected in methods.items()}
        return measure_methods(self._series.counts[slots], methods, 1440 / self._series.slots_per_day)

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


def _winner(figures: Figures, methods: Sequence[str]) -> tuple[str, str]:
    """Return the method with the smallest RMSE and the reason; the first of equals, or where none has an error."""
    errors = {method: figures[method]["rmse"].value for method in methods}
    known = {method: error for method, error in errors.items() if error is not None}
    if not known:
        return methods[0], f"{methods[0]}: there was no held-out slot to choose by"
    winner = min(known, key=lambda method: known[method])
    others = ", ".join(f"{method} {error:.4g}" for method, error in known.items() if method != winner)
    beside = f", beside {others}" if others else ""
    return winner, f"{winner}: RMSE {known[winner]:.4g} on the held-out slots{beside}"
