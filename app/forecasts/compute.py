"""Compute forecasts with trained models, or with a fallback and the reason for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from app.core.holidays import AUTO
from app.counts.series import LinkSeries
from app.forecasts.ensemble import EnsembleForecaster, EnsembleRequest
from app.forecasts.issued_forecast import (
    LAST_COUNT,
    Degradation,
    ForecastRequest,
    IssuedForecast,
    ModelForecast,
    Reason,
    StateUpdate,
    issue,
    reason_without_model,
)
from app.forecasts.lag_models import forecast_from_lags
from app.forecasts.network_forecaster import NetworkForecaster
from app.forecasts.profile_fallback import LateFallback, ProfileFallback, last_count, model_profile
from app.forecasts.queries import stored_ensembles
from app.links.queries import LinkInfo
from app.registry.loaded_models import LoadedModels
from app.registry.queries import ActiveModels, ArtifactRef, active_models, once_active
from app.registry.store import ArtifactUnreachable
from model.aggregation.experts import TRAINED_EXPERTS
from model.artifacts.artifact import DamagedArtifact


class Forecaster:
    """Computes forecasts with the models in memory, and from profiles where there is none.

    Ensembles, lag models, network models and profiles each return, by link key, the forecasts that they can compute,
    or the reasons why not.
    """

    def __init__(self, models: LoadedModels, holidays: str = AUTO) -> None:
        self.models = models
        self.networks = NetworkForecaster()
        self.profiles = ProfileFallback(holidays)
        self.ensembles = EnsembleForecaster(self.networks, self.profiles)

    def compute(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        active: Mapping[int, ActiveModels],
    ) -> list[IssuedForecast]:
        """Compute the forecasts of links from their slots ``as_of``, by link key; links without one are left out."""
        issued_at = time.time_ns() // 1000  # before counts are read: what is deleted meanwhile makes it invalid
        links = [link for link in links if link.link_key in as_of]
        self.models.prepare([ref for link in links for ref in active.get(link.link_key, ())])
        found: dict[int, ModelForecast | Reason | None] = {}
        updates: dict[int, StateUpdate | None] = {}
        together, alone = [], {}
        for link in links:
            key, models = link.link_key, active.get(link.link_key, ())
            if link.has_ensemble:
                together.append(self.ensemble_request(session, link, as_of[key], models))
            else:
                alone[key] = self.request(session, link, as_of[key], models)
        stored = stored_ensembles(session, [request.link.link_key for request in together])
        for key, (outcome, update) in self.ensembles.compute(session, together, stored).items():
            found[key], updates[key] = outcome, update
        if with_model := [request for request in alone.values() if request.loaded]:
            found |= forecast_from_lags(session, with_model) | self.networks.compute(session, with_model)
        forecasts, left = {}, []
        for link in links:
            request = alone.get(link.link_key, ForecastRequest(link, as_of[link.link_key]))
            one = found.get(link.link_key, request.reason)
            if isinstance(one, ModelForecast):
                forecasts[link.link_key] = one
            else:
                left.append(request._replace(reason=one))
        forecasts |= self.profiles.compute(session, left)
        return [
            issue(link, as_of[link.link_key], forecasts[link.link_key], issued_at)._replace(
                update=updates.get(link.link_key)
            )
            for link in links
            if link.link_key in forecasts
        ]

    def ensemble_request(self, session: Session, link: LinkInfo, as_of: int, active: ActiveModels) -> EnsembleRequest:
        """Return the request for a link that is forecast by the aggregate of its experts."""
        by_algorithm = {ref.algorithm: ref for ref in active}
        models = {
            name: self._request_model(session, link, as_of, by_algorithm[name], name)
            for name in TRAINED_EXPERTS
            if name in by_algorithm
        }
        return EnsembleRequest(link, as_of, models)

    def request(self, session: Session, link: LinkInfo, as_of: int, active: ActiveModels) -> ForecastRequest:
        """Return the request for a link with a sound model, the one that was activated last; without for an ensemble.

        Where its artifact cannot be used, the last model that was active before it is used with the reason.
        """
        if link.has_ensemble or not active:
            return ForecastRequest(link, as_of, None, reason_without_model(link))
        return self._request_model(session, link, as_of, active[-1])

    def _request_model(
        self, session: Session, link: LinkInfo, as_of: int, active: ArtifactRef, algorithm: str | None = None
    ) -> ForecastRequest:
        """Return the request for an active model, or for the last before it, of an algorithm or of any."""
        try:
            return ForecastRequest(link, as_of, self.models.get(active))
        except DamagedArtifact as damage:
            unreachable = isinstance(damage, ArtifactUnreachable)
            kind = Degradation.OTHER if unreachable else Degradation.DAMAGED_MODEL
            wrong = "out of reach" if unreachable else "damaged"
            text = f"the artifact of version {active.version} is {wrong}: {damage.reason}"
        for earlier in once_active(session, active.link_key, algorithm):
            try:
                loaded = self.models.get(earlier)
            except DamagedArtifact:
                continue
            return ForecastRequest(link, as_of, loaded, Reason(kind, f"{text}; version {earlier.version} is used"))
        return ForecastRequest(link, as_of, None, Reason(kind, text))

    def request_again(self, session: Session, issued: IssuedForecast) -> ForecastRequest:
        """Return the request for the link and slot of an issued forecast, with the model that is to be used now."""
        key = issued.link.link_key
        return self.request(session, issued.link, issued.as_of, active_models(session, [key]).get(key, ()))

    def profile_requests(self, session: Session, issued: Sequence[IssuedForecast]) -> list[ForecastRequest]:
        """Return the requests by which the profiles of links with forecasts are looked up."""
        active = active_models(session, [one.link.link_key for one in issued])
        self.models.prepare([ref for refs in active.values() for ref in refs])
        return [self.request(session, one.link, one.as_of, active.get(one.link.link_key, ())) for one in issued]

    def late_fallback(self, session: Session, issued: IssuedForecast) -> LateFallback:
        """Return the fallback for a forecast whose link has had no count for too long."""
        request = self.request_again(session, issued)
        profile = self.profiles.of(session, request)
        if isinstance(profile, LinkSeries):
            return LateFallback(0, None, float(last_count(profile, issued.as_of).expected[0]))
        return LateFallback(request.version, profile)

    def late_fallback_in_memory(self, issued: IssuedForecast) -> LateFallback | None:
        """Return the fallback without reading the database; None if neither profile nor model is in memory."""
        link, version = issued.link, profile_version(issued)
        profile = self.profiles.in_memory(link, issued.as_of, version)
        if profile is None and (loaded := self.models.in_memory(link.link_key, version)) is not None:
            profile = model_profile(loaded.model)
        if profile is not None:
            return LateFallback(version, profile)
        return LateFallback(0, None, issued.expected[0]) if issued.method == LAST_COUNT else None


def profile_version(issued: IssuedForecast) -> int:
    """Return the version of the model whose profile a link has; 0 where it is learnt without a model."""
    return 0 if issued.link.has_ensemble else issued.model_version
