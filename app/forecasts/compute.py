"""Compute forecasts with trained models, or with a fallback and the reason for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.core.errors import NotYet
from app.counts.queries import Rows
from app.counts.series import LinkSeries
from app.forecasts.issued_forecast import (
    LAST_COUNT,
    NO_PROFILE,
    PROFILE,
    Degradation,
    IssuedForecast,
    ModelForecast,
    Reason,
    issued_forecast,
    reason_without_model,
)
from app.forecasts.lag_windows import HORIZONS, LagWindows
from app.forecasts.network_context import NetworkRows
from app.forecasts.network_forecaster import ForecastRequest, NetworkForecaster
from app.forecasts.profile_fallback import (
    LEVEL,
    LINKS_AT_ONCE,
    ForecastValues,
    LinkProfile,
    ProfileFallback,
    Wanted,
    last_count,
)
from app.links.queries import LinkInfo
from app.registry.loaded_models import Loaded, LoadedModels
from app.registry.queries import ArtifactRef, active_models, once_active
from app.registry.store import ArtifactUnreachable
from model.artifacts.artifact import DamagedArtifact
from model.link_model.forecast_each import forecast_each
from model.link_model.lag_window import TooManyGaps
from model.link_model.trained_model import Forecasts, TrainedModel
from model.network_model.network import NetworkModel

Array = NDArray[np.float64]

MODELS_AT_ONCE = 16  # models on lags whose forecasts are computed together

Chosen = tuple[Loaded | None, Reason | None]  # a sound model, and why it is not the active one

log = logging.getLogger("flowcast.forecasts")


@dataclass
class Forecaster:
    """Computes forecasts with the models in memory, and from profiles where there is none."""

    models: LoadedModels
    usual: ProfileFallback = field(default_factory=ProfileFallback)
    networks: NetworkForecaster = field(default_factory=NetworkForecaster)

    def compute(
        self, session: Session, links: Sequence[LinkInfo], as_of: dict[int, int], stored: Rows | None = None
    ) -> list[IssuedForecast]:
        """Compute the forecasts of links from their slots ``as_of``, by link key; links without one are left out.

        ``stored`` are counts that were just stored and need not be read again.
        """
        issued_at = time.time_ns() // 1000  # before counts are read: what is deleted meanwhile makes it invalid
        links = [link for link in links if link.link_key in as_of]
        active = active_models(session, [link.link_key for link in links])
        self.models.prepare(active.values())
        chosen = {link.link_key: self.choose_model(session, link, active.get(link.link_key)) for link in links}
        windows = LagWindows(session, links, as_of, {key: loaded for key, (loaded, _) in chosen.items()}, stored)
        computed, reasons = self._from_lags(links, as_of, chosen, windows)
        self._from_networks(session, links, as_of, chosen, computed, reasons)
        without = [link for link in links if link.link_key not in computed]
        self._from_profiles(session, without, as_of, chosen, computed, reasons)
        return [
            issued_forecast(link, as_of[link.link_key], computed[link.link_key], issued_at)
            for link in links
            if link.link_key in computed
        ]

    def _from_lags(
        self, links: Sequence[LinkInfo], as_of: dict[int, int], chosen: Mapping[int, Chosen], windows: LagWindows
    ) -> tuple[dict[int, ModelForecast], dict[int, Reason | None]]:
        """Compute forecasts of models on lags, and return the reasons for links that get none."""
        ready, reasons = [], {key: reason for key, (_, reason) in chosen.items()}
        for link in links:
            loaded = chosen[link.link_key][0]
            if loaded is None or not isinstance(loaded.model, TrainedModel):
                continue
            try:
                newest, model = as_of[link.link_key], loaded.model
                usual = windows.usual(link, newest, model)
                ready.append((link, loaded.version, model, usual, *windows.latest(link, newest, model)))
            except TooManyGaps as gaps:
                reasons[link.link_key] = Reason(Degradation.GAPS, str(gaps))
            except Exception as problem:
                log.exception("a link's window failed", extra={"link": link.link_id})
                reasons[link.link_key] = Reason(Degradation.FAILED, f"its window failed: {type(problem).__name__}")
        forecasts: list[Forecasts] = []
        for begin in range(0, len(ready), MODELS_AT_ONCE):
            part = ready[begin : begin + MODELS_AT_ONCE]
            forecasts += forecast_each([one[2] for one in part], [one[4] for one in part])
        computed = {}
        for (link, version, model, usual, _, filled), issued in zip(ready, forecasts, strict=True):
            assert model.bands is not None
            computed[link.link_key] = ModelForecast(
                version,
                model.algorithm,
                reasons[link.link_key],
                filled,
                model.bands.level,
                ForecastValues(issued.expected[0], issued.lower[0], issued.upper[0]),
                usual,
            )
        return computed, reasons

    def _from_networks(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        chosen: Mapping[int, Chosen],
        computed: dict[int, ModelForecast],
        reasons: dict[int, Reason | None],
    ) -> None:
        """Add the forecasts of network models, and the reasons for links that get none."""
        requests, versions = [], {}
        for link in links:
            loaded = chosen[link.link_key][0]
            if loaded is not None and isinstance(loaded.model, NetworkModel):
                requests.append(ForecastRequest(link, loaded.model, as_of[link.link_key]))
                versions[link.link_key] = loaded.version
        found, missing = self.networks.compute(session, requests)
        reasons.update(missing)
        for link, model, _ in requests:
            forecast = found.get(link.link_key)
            if forecast is not None:
                assert model.bands is not None
                key, level = link.link_key, model.bands.level
                computed[key] = ModelForecast(
                    versions[key],
                    model.algorithm,
                    reasons[key],
                    forecast.filled,
                    level,
                    forecast.values,
                    forecast.usual,
                )

    def _from_profiles(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        chosen: Mapping[int, Chosen],
        computed: dict[int, ModelForecast],
        reasons: Mapping[int, Reason | None],
    ) -> None:
        """Add the forecasts of links that no model has made one for, from their profiles or else their last counts."""
        wanted = []
        for link in links:
            loaded = chosen[link.link_key][0]
            own = (loaded.model.profile, loaded.version) if loaded else (None, 0)
            wanted.append(Wanted(link, as_of[link.link_key], *own))
        for begin in range(0, len(wanted), LINKS_AT_ONCE):
            part = wanted[begin : begin + LINKS_AT_ONCE]
            known = self.usual.look_up(session, part)
            for one in part:
                key = one.link.link_key
                try:
                    computed[key] = self._from_profile(one, known[key], reasons[key])
                except NotYet:
                    raise
                except Exception:  # one bad link must not spoil the response for the others
                    log.exception("a link's forecast failed", extra={"link": one.link.link_id})

    def _from_profile(self, wanted: Wanted, known: LinkProfile | Rows, reason: Reason | None) -> ModelForecast:
        link, newest, _, version = wanted
        usual = self.usual.learn(wanted, known)
        if isinstance(usual, LinkSeries):
            values = last_count(usual, newest, HORIZONS)
            return ModelForecast(0, LAST_COUNT, reason or NO_PROFILE, 0, LEVEL, values, None)
        values = usual.at(link, newest + link.slot_seconds, HORIZONS)
        return ModelForecast(version, PROFILE, reason, 0, LEVEL, values, values.expected)

    def choose_model(self, session: Session, link: LinkInfo, place: ArtifactRef | None) -> Chosen:
        """Return a sound model: the active one, or the last before it with the reason."""
        if place is None:
            return None, reason_without_model(link)
        try:
            return self.models.get(place), None
        except DamagedArtifact as damage:
            unreachable = isinstance(damage, ArtifactUnreachable)
            kind = Degradation.OTHER if unreachable else Degradation.DAMAGED_MODEL
            wrong = "out of reach" if unreachable else "damaged"
            reason = Reason(kind, f"the artifact of version {place.version} is {wrong}: {damage.reason}")
        for earlier in once_active(session, place.link_key):
            try:
                answers = f"{reason.text}; version {earlier.version} answers"
                return self.models.get(earlier), Reason(reason.kind, answers)
            except DamagedArtifact:
                continue
        return None, reason

    def model_of(self, session: Session, issued: IssuedForecast) -> Loaded | None:
        """Return the model that made a forecast; None where none did."""
        key = issued.link.link_key
        loaded, _ = self.choose_model(session, issued.link, active_models(session, [key]).get(key))
        other = loaded is None or loaded.version != issued.model_version or issued.method == PROFILE
        return None if other else loaded

    def window_of(self, session: Session, issued: IssuedForecast, loaded: Loaded, model: TrainedModel) -> Array | None:
        """Return the lag window that a forecast was made from; None where counts were corrected away since."""
        key = issued.link.link_key
        windows = LagWindows(session, [issued.link], {key: issued.as_of}, {key: loaded})
        try:
            return windows.latest(issued.link, issued.as_of, model)[0]
        except TooManyGaps:
            return None

    def rows_of(self, session: Session, issued: IssuedForecast, model: NetworkModel) -> NetworkRows | None:
        """Return the rows of context that a forecast was made from; None where counts were corrected away since."""
        try:
            return self.networks.rows(session, ForecastRequest(issued.link, model, issued.as_of))
        except TooManyGaps:
            return None
