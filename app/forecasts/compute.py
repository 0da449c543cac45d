"""Compute forecasts with trained models, or with a fallback and the reason for it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.counts.series import LinkSeries
from app.forecasts.issued_forecast import (
    LAST_COUNT,
    Degradation,
    ForecastRequest,
    IssuedForecast,
    ModelForecast,
    Reason,
    issue,
    reason_without_model,
)
from app.forecasts.lag_models import forecast_from_lags
from app.forecasts.network_forecaster import NetworkForecaster
from app.forecasts.profile_fallback import LateFallback, ProfileFallback, last_count, model_profile
from app.links.queries import LinkInfo
from app.registry.loaded_models import LoadedModels
from app.registry.queries import ArtifactRef, active_models, once_active
from app.registry.store import ArtifactUnreachable
from model.artifacts.artifact import DamagedArtifact


class Forecaster:
    """Computes forecasts with the models in memory, and from profiles where there is none.

    Lag models, network models and profiles each return, by link key, the forecasts that they can compute, or the
    reasons why not.
    """

    def __init__(self, models: LoadedModels) -> None:
        self.models = models
        self.networks = NetworkForecaster()
        self.profiles = ProfileFallback()

    def compute(self, session: Session, links: Sequence[LinkInfo], as_of: dict[int, int]) -> list[IssuedForecast]:
        """Compute the forecasts of links from their slots ``as_of``, by link key; links without one are left out."""
        issued_at = time.time_ns() // 1000  # before counts are read: what is deleted meanwhile makes it invalid
        links = [link for link in links if link.link_key in as_of]
        active = active_models(session, [link.link_key for link in links])
        if active:
            self.models.prepare(active.values())
        requests = [self.request(session, link, as_of[link.link_key], active.get(link.link_key)) for link in links]
        found: dict[int, ModelForecast | Reason] = {}
        if with_model := [request for request in requests if request.loaded]:
            found = forecast_from_lags(session, with_model) | self.networks.compute(session, with_model)
        forecasts, left = {}, []
        for request in requests:
            outcome = found.get(request.link.link_key, request.reason)
            if isinstance(outcome, ModelForecast):
                forecasts[request.link.link_key] = outcome
            else:
                left.append(request._replace(reason=outcome))
        forecasts |= self.profiles.compute(session, left)
        return [
            issue(link, as_of[link.link_key], forecasts[link.link_key], issued_at)
            for link in links
            if link.link_key in forecasts
        ]

    def request(self, session: Session, link: LinkInfo, as_of: int, active: ArtifactRef | None) -> ForecastRequest:
        """Return the request for a link with a sound model: the active one, or the last before it with the reason."""
        if active is None:
            return ForecastRequest(link, as_of, None, reason_without_model(link))
        try:
            return ForecastRequest(link, as_of, self.models.get(active))
        except DamagedArtifact as damage:
            unreachable = isinstance(damage, ArtifactUnreachable)
            kind = Degradation.OTHER if unreachable else Degradation.DAMAGED_MODEL
            wrong = "out of reach" if unreachable else "damaged"
            text = f"the artifact of version {active.version} is {wrong}: {damage.reason}"
        for earlier in once_active(session, active.link_key):
            try:
                loaded = self.models.get(earlier)
            except DamagedArtifact:
                continue
            return ForecastRequest(link, as_of, loaded, Reason(kind, f"{text}; version {earlier.version} is used"))
        return ForecastRequest(link, as_of, None, Reason(kind, text))

    def request_again(self, session: Session, issued: IssuedForecast) -> ForecastRequest:
        """Return the request for the link and slot of an issued forecast, with the model that is to be used now."""
        key = issued.link.link_key
        return self.request(session, issued.link, issued.as_of, active_models(session, [key]).get(key))

    def late_fallback(self, session: Session, issued: IssuedForecast) -> LateFallback:
        """Return the fallback for a forecast whose link has had no count for too long."""
        request = self.request_again(session, issued)
        profile = self.profiles.of(session, request)
        if isinstance(profile, LinkSeries):
            return LateFallback(0, None, float(last_count(profile, issued.as_of).expected[0]))
        return LateFallback(request.version, profile)

    def late_fallback_in_memory(self, issued: IssuedForecast) -> LateFallback | None:
        """Return the fallback without reading the database; None if neither profile nor model is in memory."""
        link, version = issued.link, issued.model_version
        profile = self.profiles.in_memory(link, issued.as_of, version)
        if profile is None and (loaded := self.models.in_memory(link.link_key, version)) is not None:
            profile = model_profile(loaded.model)
        if profile is not None:
            return LateFallback(version, profile)
        return LateFallback(0, None, issued.expected[0]) if issued.method == LAST_COUNT else None
