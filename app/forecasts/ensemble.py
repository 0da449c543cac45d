"""Forecasts of links by the aggregate of their experts, and the states of the aggregation that go with them.

A state goes on from slot to slot by the stored counts alone. So it is the same whichever process issues a forecast,
after a crash, and however counts are batched, up to ``CATCH_UP`` slots at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from app.counts.queries import counts_between
from app.forecasts.issued_forecast import (
    ENSEMBLE,
    HORIZONS,
    Array,
    ExpertForecasts,
    ForecastRequest,
    ModelForecast,
    Reason,
    StateUpdate,
    pack_experts,
)
from app.forecasts.lag_models import forecast_from_lags
from app.forecasts.network_forecaster import NetworkForecaster
from app.forecasts.profile_fallback import ProfileFallback
from app.forecasts.queries import StoredEnsemble
from app.links.queries import LinkInfo
from model.aggregation.experts import EXPERT_NAMES as NAMES
from model.aggregation.experts import RECENT, TRAINED_EXPERTS, ExpertInputs, forecast_experts
from model.aggregation.intervals import BAND_LEVEL, IntervalFactors, issued_bands
from model.aggregation.online import Aggregate
from model.aggregation.state import Aggregation, Offsets, pack, unpack
from model.link_model.intervals import Bands

CATCH_UP = 12  # slots that a state goes on by at once, as after a crash; where there are more, the earlier are skipped


class EnsembleRequest(NamedTuple):
    """A link to forecast, with requests for its trained experts by algorithm."""

    link: LinkInfo
    as_of: int  # Unix seconds of the newest slot known
    models: Mapping[str, ForecastRequest]


class EnsembleOutcome(NamedTuple):
    """The forecast of a link, or the reason why at most one expert has one; and the state that goes with it."""

    forecast: ModelForecast | Reason | None
    update: StateUpdate


class _Walk(NamedTuple):
    """The way of a state to the slot of a request, in Unix seconds."""

    as_of: int | None  # slot of the state
    has_forecast: bool  # whether the state has the forecasts from that slot
    last: int
    seconds: int

    def skipped(self, most: int) -> int:
        """Return the number of slots after that of the state that are skipped."""
        return 0 if self.as_of is None else max(0, (self.last - self.as_of) // self.seconds - most)

    def slots(self, most: int) -> range:
        """Return the slots to forecast from; the state learns from those after its own."""
        if self.as_of is None or self.last <= self.as_of:
            return range(self.last, self.last + 1)
        if skipped := self.skipped(most):
            return range(self.as_of + (skipped + 1) * self.seconds, self.last + 1, self.seconds)
        return range(self.as_of + self.has_forecast * self.seconds, self.last + 1, self.seconds)

    def learns_from(self, slot: int) -> bool:
        """Return whether the state goes on to a slot."""
        return self.as_of is not None and slot > self.as_of


class _Expected(NamedTuple):
    """What the experts of links expect as of a slot."""

    counts: Array  # (n_links,) of the slot, NaN where there is none
    experts: Array  # (n_links, n_horizons, n_experts)
    profile: Array  # (n_links, n_horizons)
    bands: list[Bands | None]
    models: list[dict[str, ModelForecast | Reason]]  # the outcomes of each link's trained experts by algorithm


class EnsembleForecaster:
    """Computes forecasts of links by several experts."""

    def __init__(self, networks: NetworkForecaster, profiles: ProfileFallback) -> None:
        self._networks, self._profiles = networks, profiles

    def compute(
        self,
        session: Session,
        requests: Sequence[EnsembleRequest],
        stored: Mapping[int, StoredEnsemble],
        *,
        most_slots: int = CATCH_UP,
    ) -> dict[int, EnsembleOutcome]:
        """Return the outcomes of links by link key.

        Their states go on from those that are stored, by so many slots at most.
        """
        before = [stored.get(request.link.link_key, StoredEnsemble.none()) for request in requests]
        states = unpack([one.state for one in before])
        groups: dict[_Walk, list[int]] = {}
        for i, (request, one, has_forecast) in enumerate(
            zip(requests, before, states.has_forecast.tolist(), strict=True)
        ):
            walk = _Walk(one.as_of, has_forecast, request.as_of, request.link.slot_seconds)
            groups.setdefault(walk, []).append(i)
        found: dict[int, EnsembleOutcome] = {}
        for walk, rows in groups.items():
            group = [requests[i] for i in rows]
            expected, factors, aggregate, offsets, state = self._walk(
                session, group, states.rows(rows), walk, most_slots
            )
            forecasts = _forecasts(group, expected, factors, aggregate, offsets)
            for i, forecast, new in zip(rows, forecasts, pack(state), strict=True):
                update = StateUpdate(walk.last, new, before[i].revision)
                found[requests[i].link.link_key] = EnsembleOutcome(forecast, update)
        return found

    def _walk(
        self, session: Session, group: Sequence[EnsembleRequest], state: Aggregation, walk: _Walk, most: int
    ) -> tuple[_Expected, IntervalFactors, Aggregate, Offsets, Aggregation]:
        """Move the states of links on to the slot of their requests; return what is expected there."""
        if walk.as_of is not None and walk.last < walk.as_of:  # newer counts were deleted, or a past slot is asked for
            state = state.without_forecasts()
        for _ in range(min(walk.skipped(most), HORIZONS)):
            state = state.after(np.full(len(group), np.nan))
        for slot in walk.slots(most):
            expected = self._expect(session, group, slot)
            if walk.learns_from(slot):
                state = state.after(expected.counts)
            if slot < walk.last:  # without a count, no forecast was issued
                expected.experts[np.isnan(expected.counts)] = np.nan
            factors = state.factors
            state, aggregate, offsets = state.forecast(expected.experts, expected.bands)
        return expected, factors, aggregate, offsets, state

    def _expect(self, session: Session, group: Sequence[EnsembleRequest], slot: int) -> _Expected:
        """Return what all experts expect as of a slot; no later count is read."""
        keys = np.array([request.link.link_key for request in group])
        seconds = group[0].link.slot_seconds
        first = slot - (RECENT - 1) * seconds
        recent, order = np.full((len(group), RECENT), np.nan), np.argsort(keys)
        rows = counts_between(session, keys.tolist(), first, slot)
        recent[order[np.searchsorted(keys[order], rows[:, 0])], (rows[:, 1] - first) // seconds] = rows[:, 2]
        profiles = self._profiles.profiles(session, [ForecastRequest(request.link, slot) for request in group])
        slots = np.full((len(group), RECENT + HORIZONS), np.nan)
        for i, request in enumerate(group):
            if (profile := profiles.get(request.link.link_key)) is not None:
                slots[i] = profile.at(request.link, first, RECENT + HORIZONS)
        models = self._forecast_models(session, group, slot)
        of_models = {name: np.full((len(group), HORIZONS), np.nan) for name in TRAINED_EXPERTS}
        bands: list[Bands | None] = []
        for i, (request, outcomes) in enumerate(zip(group, models, strict=True)):
            of_link: list[Bands | None] = []
            for name, outcome in outcomes.items():
                if isinstance(outcome, ModelForecast):
                    of_models[name][i] = outcome.expected[:HORIZONS]
                    loaded = request.models[name].loaded
                    of_link.append(loaded.model.bands if loaded else None)
            if (profile := profiles.get(request.link.link_key)) is not None:
                of_link.append(profile.bands)
            bands.append(next((issued_bands(one, HORIZONS) for one in of_link if one is not None), None))
        inputs = ExpertInputs(slots[:, RECENT:], recent, slots[:, :RECENT], of_models)
        return _Expected(recent[:, -1], forecast_experts(inputs), inputs.profile, bands, models)

    def _forecast_models(
        self, session: Session, group: Sequence[EnsembleRequest], slot: int
    ) -> list[dict[str, ModelForecast | Reason]]:
        """Return the outcomes of each link's trained experts by algorithm, in the order of experts."""
        outcomes: list[dict[str, ModelForecast | Reason]] = [{} for _ in group]
        for name in TRAINED_EXPERTS:
            asked = {i: request.models[name] for i, request in enumerate(group) if name in request.models}
            loaded = [one._replace(as_of=slot) for one in asked.values() if one.loaded]
            found = forecast_from_lags(session, loaded) | self._networks.compute(session, loaded) if loaded else {}
            for i, request in asked.items():
                outcome = found.get(request.link.link_key, request.reason)
                if outcome is not None:
                    outcomes[i][name] = outcome
        return outcomes


def _forecasts(
    group: Sequence[EnsembleRequest],
    expected: _Expected,
    factors: IntervalFactors,
    aggregate: Aggregate,
    offsets: Offsets,
) -> list[ModelForecast | Reason | None]:
    """Return the forecast of each link; that of its model, or a reason, where no second expert has one."""
    lower, upper = factors.around(aggregate.expected, offsets.below, offsets.above)
    available = ~np.isnan(expected.experts[:, 0])  # (n_links, n_experts)
    forecasts: list[ModelForecast | Reason | None] = []
    for i, outcomes in enumerate(expected.models):
        reason = _reason(outcomes)
        models = {name: one for name, one in outcomes.items() if isinstance(one, ModelForecast)}
        if available[i].sum() < 2:
            alone = next(iter(models.values()), None)
            forecasts.append(reason if alone is None else alone._replace(reason=reason))
            continue
        weights = aggregate.weights[i]
        heaviest = models.get(NAMES[int(np.argmax(weights[0]))])
        has_interval, has_profile = not np.isnan(offsets.below[i]).any(), not np.isnan(expected.profile[i]).any()
        packed = pack_experts(weights, expected.experts[i])
        forecasts.append(
            ModelForecast(
                ENSEMBLE,
                heaviest.version if heaviest else 0,
                BAND_LEVEL,
                aggregate.expected[i],
                lower[i] if has_interval else None,
                upper[i] if has_interval else None,
                expected.profile[i] if has_profile else None,
                max((one.filled_lags for one in models.values()), default=0),
                reason,
                ExpertForecasts(packed, factors.factors[i].tobytes()),
            )
        )
    return forecasts


def _reason(outcomes: Mapping[str, ModelForecast | Reason]) -> Reason | None:
    """Return why active experts are left out, or are of an earlier version; with the kind of the first."""
    reasons = [
        Reason(one.kind, f"{name} is left out: {one.text}") if isinstance(one, Reason) else one.reason
        for name, one in outcomes.items()
    ]
    known = [reason for reason in reasons if reason is not None]
    return Reason(known[0].kind, "; ".join(reason.text for reason in known)) if known else None
