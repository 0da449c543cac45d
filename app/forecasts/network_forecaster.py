"""Compute forecasts from network models, all links of a network together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.forecasts.issued_forecast import Degradation, Reason
from app.forecasts.network_context import NetworkRows, rows_of
from app.forecasts.network_deviations import NetworkDeviationCache
from app.forecasts.profile_fallback import ForecastValues
from app.links.queries import LinkInfo
from model.link_model.lag_window import TooManyGaps
from model.link_model.profile import Array
from model.network_model.context import MOST_FILLED, RECENT
from model.network_model.forecast_each import forecast_network
from model.network_model.network import NetworkModel

log = logging.getLogger("flowcast.forecasts")


class ForecastRequest(NamedTuple):
    """A link of a network, its model, and its newest slot in Unix seconds."""

    link: LinkInfo
    model: NetworkModel
    newest: int


class NetworkForecast(NamedTuple):
    """A model's forecast of the next slots, their profile, and how many recent slots had no count."""

    values: ForecastValues
    usual: Array
    filled: int


@dataclass
class NetworkForecaster:
    """Computes forecasts of network models, and keeps the deviations of their networks."""

    deviations: NetworkDeviationCache = field(default_factory=NetworkDeviationCache)

    def compute(
        self, session: Session, requests: Sequence[ForecastRequest]
    ) -> tuple[dict[int, NetworkForecast], dict[int, Reason]]:
        """Return forecasts by link key, and for the other links the reason why there is none."""
        found: dict[int, NetworkForecast] = {}
        reasons: dict[int, Reason] = {}
        for group in _alike(requests):
            self._compute_group(session, group, found, reasons)
        return found, reasons

    def rows(self, session: Session, request: ForecastRequest) -> NetworkRows:
        """Return the rows of context of one link, or raise where it has too many gaps."""
        link, model, newest = request
        rows = rows_of(session, self.deviations, [link], [model], newest)
        if (reason := too_many_gaps(rows.filled[0])) is not None:
            raise TooManyGaps(reason)
        return rows

    def _compute_group(
        self,
        session: Session,
        group: Sequence[ForecastRequest],
        found: dict[int, NetworkForecast],
        reasons: dict[int, Reason],
    ) -> None:
        try:
            self._forecast(session, group, found, reasons)
        except SQLAlchemyError:
            raise
        except Exception as problem:
            if len(group) > 1:  # one bad link must not spoil the forecasts of the others
                for request in group:
                    self._compute_group(session, [request], found, reasons)
                return
            log.exception("a link's context failed", extra={"link": group[0].link.link_id})
            text = f"its context failed: {type(problem).__name__}"
            reasons[group[0].link.link_key] = Reason(Degradation.FAILED, text)

    def _forecast(
        self,
        session: Session,
        group: Sequence[ForecastRequest],
        found: dict[int, NetworkForecast],
        reasons: dict[int, Reason],
    ) -> None:
        models = [request.model for request in group]
        rows = rows_of(session, self.deviations, [request.link for request in group], models, group[0].newest)
        forecasts = forecast_network(models, rows.columns, rows.usual)
        scale = np.array([model.scale for model in models])[:, None]
        center = np.array([model.center for model in models])[:, None]
        usual = np.maximum(rows.usual * scale + center, 0.0)
        for i, request in enumerate(group):
            key, gaps = request.link.link_key, too_many_gaps(rows.filled[i])
            if gaps is not None:
                reasons[key] = Reason(Degradation.GAPS, gaps)
            elif not np.isfinite(forecasts.expected[i]).all():
                reasons[key] = Reason(Degradation.NO_PROFILE, "its network has no profile of it")
            else:
                values = ForecastValues(forecasts.expected[i], forecasts.lower[i], forecasts.upper[i])
                found[key] = NetworkForecast(values, usual[i], rows.filled[i])


def _alike(requests: Sequence[ForecastRequest]) -> list[list[ForecastRequest]]:
    """Group requests whose rows can be computed together: of one network, as of one slot."""
    groups: dict[tuple[int, int, str, int], list[ForecastRequest]] = {}
    for request in requests:
        link = request.link
        key = (id(request.model.network), request.newest, link.zone_name, link.slot_minutes)
        groups.setdefault(key, []).append(request)
    return list(groups.values())


def too_many_gaps(filled: int) -> str | None:
    """Return the reason not to use a model where too many recent counts are filled in; None where few are."""
    most = int(MOST_FILLED * RECENT)
    if filled <= most:
        return None
    return f"{filled} of {RECENT} lags are missing; at most {most} may be filled"
