"""Settle one link of a network: measure, choose, save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from app.counts.series import LinkSeries, as_count_series
from app.training.aligned_counts import examined
from app.training.link_training import (
    ActiveModel,
    data_fingerprint,
    describe,
    figures_as_json,
    learnt_from,
    rivals_of,
)
from app.training.network_options import BEST, NetworkTraining
from app.training.network_stage import ACTIVE, BASE, NETWORK, NetworkStage
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
    compare,
    continuations,
    cross_coverage,
    measured,
    train,
)
from model.link_model.training_plan import TrainingPlan
from model.network_model.network import NetworkModel

Figures = dict[str, dict[str, Measure]]


class LinkModelSelector:
    """One link of a network, about to get its model."""

    def __init__(
        self,
        link: LinkSeries,
        how: NetworkTraining,
        phase: NetworkStage,
        capacity: float | None,
        active: ActiveModel | None,
        on_evaluation: OnEvaluation | None = None,
    ) -> None:
        self._on_evaluation = on_evaluation
        self._link, self._how, self._phase, self._capacity = link, how, phase, capacity
        self._series = as_count_series(link)
        self._health = examined(link, capacity)
        self._rivals = rivals_of(link, active)
        self._draft = phase.model(link.link_id)
        self._forecasts = phase.forecasts(link)
        self._active = {ACTIVE: self._forecasts[ACTIVE][:, 0]} if ACTIVE in self._forecasts else {}

    def select(self, folder: Path, key: str) -> dict[str, Any]:
        """Choose, save, and give what is known about what was chosen."""
        if self._how.algorithm == BEST:
            return self._best(folder, key)
        if self._draft is None:
            raise NotEnoughCounts(self._phase.failed or "the network has no counts of it")
        figures, young = self._network_figures({"candidate": self._one_ahead(NETWORK), BASE: self._one_ahead(BASE)})
        return self._save_network_model(folder, self._draft, NETWORK, figures, self._more(key, young))

    def _best(self, folder: Path, key: str) -> dict[str, Any]:
        forecasts, missing = {NETWORK: self._one_ahead(NETWORK), BASE: self._one_ahead(BASE)}, ""
        if self._draft is None:
            forecasts = {}
            missing = f"; there is no network model: {self._phase.failed or 'the network has no counts of it'}"
        try:
            alone = self._alone(self._how.alone, forecasts)
        except NotEnoughCounts:
            if self._draft is None:
                raise
            figures, young = self._network_figures(forecasts)
            winner, reason = _winner(figures, (NETWORK, BASE))
            figures = {"candidate": dict(figures[winner]), **figures}
            return self._save_winner(folder, winner, figures, self._more(key, young, reason))
        figures = alone.held_out | {"KR_SML": dict(alone.held_out["candidate"])}
        winner, reason = _winner(figures, (*forecasts, "KR_SML", "KR"))
        reason += missing
        if winner == "KR_SML":
            return self._save_alone(folder, alone._replace(held_out=figures), key, reason)
        if winner == "KR":
            plain = self._alone(replace(self._how.alone, algorithm="KR"), forecasts)
            figures["candidate"] = plain.held_out["candidate"]
            return self._save_alone(folder, plain._replace(held_out=figures), key, reason)
        figures["candidate"] = dict(figures[winner])
        return self._save_winner(folder, winner, figures, self._more(key, False, reason))

    def _alone(self, plan: TrainingPlan, forecasts: Mapping[str, Array]) -> TrainingResult:
        others = {**forecasts, **self._active}
        return train(self._series, plan, self._capacity, self._link.suspect, self._rivals, others, self._on_evaluation)

    def _save_winner(self, folder: Path, winner: str, figures: Figures, more: dict[str, Any]) -> dict[str, Any]:
        assert self._draft is not None
        model = self._draft
        if winner == BASE:  # the network model without its memories, within bands of its own errors
            model = replace(model, shares=np.zeros(2), bands=self._base_bands() or model.bands)
        return self._save_network_model(folder, model, winner, figures, more)

    def _save_network_model(
        self, folder: Path, model: NetworkModel, method: str, figures: Figures, more: dict[str, Any]
    ) -> dict[str, Any]:
        figures["candidate"]["coverage"] = self._coverage(self._forecasts.get(method))
        about = {
            **learnt_from(self._link, self._health, data_fingerprint(self._link, self._capacity)),
            "plan": self._how.as_json(),
            "mu": self._phase.facts["mu"],
            "n_iter": self._phase.facts["n_iter"],
            "rank": model.rank,
            "held_out": figures_as_json(figures),
            "network": self._phase.network,
            **more,
        }
        save_network_model(folder, model, self._phase.network, about)
        return about

    def _save_alone(self, folder: Path, result: TrainingResult, key: str, reason: str) -> dict[str, Any]:
        plan = replace(self._how.alone, algorithm=result.model.algorithm)
        about = describe(self._link, plan, result, data_fingerprint(self._link, self._capacity))
        about |= self._more(key, False, reason)
        save_model(folder, result.model, about)
        return about

    def _more(self, key: str, young: bool, reason: str = "") -> dict[str, Any]:
        """Return what only training in a network knows."""
        found: dict[str, Any] = {"training": key, "young": young}
        return found | ({"chosen": reason} if reason else {})

    def _one_ahead(self, method: str) -> Array:
        forecasts = self._forecasts.get(method)
        return np.full(len(self._link), np.nan) if forecasts is None else forecasts[:, 0]

    def _network_figures(self, forecasts: dict[str, Array]) -> tuple[Figures, bool]:
        """Measure the network's forecasts beside KR, profile and last week; of a young link beside what it has."""
        try:
            return compare(
                self._series,
                forecasts | self._active,
                self._how.alone,
                self._capacity,
                self._link.suspect,
                self._rivals,
            ), False
        except NotEnoughCounts:
            return self._young_figures(forecasts | self._active), True

    def _young_figures(self, forecasts: dict[str, Array]) -> Figures:
        """Measure day by day, against the link's own profile of the days before each."""
        sound = self._series.without(self._health.suspect)
        begin = max(0, len(self._link) - self._how.alone.held_out_days * self._series.slots_per_day)
        slots = np.arange(begin, len(self._link))
        methods = {"profile": _daily_profile(sound, self._link)[slots], "last_week": self._series.last_week()[slots]}
        methods = {method: expected[slots] for method, expected in forecasts.items()} | methods
        return measured(self._series.counts[slots], methods, 1440 / self._series.slots_per_day)

    def _coverage(self, forecasts: Array | None) -> Measure:
        """Measure coverage as for a link trained by itself: each held-out day within the other days' bands."""
        if forecasts is None:
            return Measure(None, 0)
        sound = self._series.without(self._health.suspect).counts
        begin = max(0, len(self._link) - self._how.alone.held_out_days * self._series.slots_per_day)
        slots = np.flatnonzero(~np.isnan(forecasts[:, 0]) & ~np.isnan(sound))
        slots = slots[slots >= begin]
        return cross_coverage(forecasts[slots, :1], sound[slots, None], slots, self._series, self._how.network.level)

    def _base_bands(self) -> Bands | None:
        forecasts = self._forecasts[BASE]
        sound = self._series.without(self._health.suspect).counts
        came = continuations(sound, np.arange(len(forecasts)), forecasts.shape[1])
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
