"""Explain a forecast: the experts that made it, similar moments, and the lags or context that matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from app.core.database import reading
from app.core.errors import Conflict, FieldError, Invalid, ProblemType, no_link
from app.core.times import SECONDS_A_DAY, Span, instant_of, rfc_3339, unix_seconds
from app.counts.tables import Count
from app.forecasts.cache import CacheEntry, ForecastCache
from app.forecasts.compute import Forecaster
from app.forecasts.day_ahead import read_profiles
from app.forecasts.issued_forecast import HORIZONS, PROFILE, Document, ForecastRequest, IssuedForecast, by_expert
from app.forecasts.lag_models import lag_window
from app.forecasts.network_forecaster import NetworkRows, too_many_gaps
from app.forecasts.options import ForecastOptions
from app.forecasts.queries import last_issued, past_forecasts
from app.forecasts.schemas import (
    ContextShare,
    ExpertShare,
    Explanation,
    MemoryShares,
    ModelExplanation,
    Neighbour,
)
from app.links.queries import LinkInfo, link_keys, link_or_404
from app.registry.queries import active_models
from app.registry.show import lag_weights
from model.estimators.kernel import Array, RowIndices
from model.link_model.lag_window import TooManyGaps
from model.link_model.trained_model import TrainedModel, level_of
from model.network_model.local_memory import LocalMemory
from model.network_model.network import NetworkModel

DECIMALS = 3
MOST_NEIGHBOURS = 12
MOST_LAGS = 12


def explained_forecast(
    cache: ForecastCache, link_id: str, options: ForecastOptions, as_of: datetime | None, with_reasons: bool
) -> Document:
    """Return one link's forecast with its reasons, or as of a past slot, which is computed and not stored."""
    entry = cache.look_up([link_id]).get(link_id)
    if entry is None:
        raise no_link(link_id)
    options.check([entry.key.link])
    explanation = None
    with reading(cache.engine) as session:
        if as_of is None:
            forecast, age = cache.current(entry)
        else:
            link = link_or_404(session, link_id)
            slot = _past_slot(entry, as_of)
            active = active_models(session, [link.link_key])
            forecast = next(iter(cache.forecaster.compute(session, [link], {link.link_key: slot}, active)), None)
            age = max(0, cache.now() - slot - link.slot_seconds)
        if forecast is None:
            raise entry.missing()
        if with_reasons:
            explanation = explain(session, cache.forecaster, forecast)
    profile = read_profiles(cache, [(entry, forecast)]).of(forecast.link) if options.needs_profile else None
    document = options.link_document(forecast, profile, age)
    if with_reasons:
        document["explanation"] = None if explanation is None else explanation.model_dump(mode="json")
    return document


def _past_slot(entry: CacheEntry, as_of: datetime) -> int:
    slot, link, newest = unix_seconds(as_of), entry.key.link, entry.key.as_of
    if slot % link.slot_seconds or as_of.microsecond:
        raise Invalid.field(
            "as_of", rfc_3339(as_of), f"must lie on the link's grid of {link.slot_minutes}-minute slots"
        )
    if newest is None:
        raise entry.missing()
    if slot > newest:
        raise Conflict(
            ProblemType.AFTER_NEWEST_COUNT,
            f"as_of={rfc_3339(as_of)} lies after the newest count of link {link.link_id!r}",
            [FieldError("as_of", rfc_3339(as_of), f"must be at most {rfc_3339(instant_of(newest))}")],
        )
    return slot


def explain(session: Session, forecaster: Forecaster, issued: IssuedForecast) -> Explanation | None:
    """Explain a forecast; return None if no trained model made it, or too many of its counts are missing now."""
    if issued.experts is not None:
        return _explain_ensemble(session, forecaster, issued, issued.experts.by_horizon[0])
    if issued.link.has_ensemble:  # and one of its models forecasts alone
        active = active_models(session, [issued.link.link_key]).get(issued.link.link_key, ())
        experts = forecaster.ensemble_request(session, issued.link, issued.as_of, active).models
        request = experts.get(issued.method, ForecastRequest(issued.link, issued.as_of))
    else:
        request = forecaster.request_again(session, issued)
    if request.version != issued.model_version or issued.method == PROFILE:
        return None
    explained = _explain_model(session, forecaster, request)
    return None if explained is None else Explanation(**dict(explained))


def _explain_ensemble(
    session: Session, forecaster: Forecaster, issued: IssuedForecast, one_ahead: bytes
) -> Explanation:
    """List the experts, the largest weight first, with their recent errors and their own explanations."""
    key, link = issued.link.link_key, issued.link
    active = active_models(session, [key]).get(key, ())
    models = forecaster.ensemble_request(session, link, issued.as_of, active).models
    errors = _recent_errors(session, link, issued.as_of)
    weights, expected = by_expert(one_ahead)
    experts = []
    for name in sorted(weights, key=lambda name: -weights[name]):
        request = models.get(name)
        explained = None if request is None else _explain_model(session, forecaster, request)
        squares = errors.get(name, [])
        rmse = round(math.sqrt(sum(squares) / len(squares)), DECIMALS) if squares else None
        experts.append(
            ExpertShare(
                name=name,
                model_version=request.version or None if request else None,
                weight=weights[name],
                expected_count=expected[name],
                recent_rmse=rmse,
                recent_slots=len(squares),
                explanation=explained,
            )
        )
    heaviest = next((expert.explanation for expert in experts if expert.explanation is not None), None)
    return Explanation(**dict(heaviest or ModelExplanation(neighbours=[], lags=[], rank=0)) | {"experts": experts})


def _recent_errors(session: Session, link: LinkInfo, as_of: int) -> dict[str, list[float]]:
    """Return the squared errors of the experts' forecasts one slot ahead in the last 24 hours."""
    span = Span(as_of + link.slot_seconds - SECONDS_A_DAY, as_of + link.slot_seconds)
    errors: dict[str, list[float]] = {}
    # After a change of experts a slot has several.
    rows = past_forecasts(session, link.link_key, span, 1, None, None, 2 * link.grid.slots_per_day, by_experts=True)
    for forecast, count, _ in last_issued(rows):
        for name, expected in by_expert(forecast.experts or b"")[1].items():
            if expected is not None and count is not None:
                errors.setdefault(name, []).append((expected - count) ** 2)
    return errors


def _explain_model(session: Session, forecaster: Forecaster, request: ForecastRequest) -> ModelExplanation | None:
    """Explain the forecast of one trained model."""
    if request.loaded is None:
        return None
    if isinstance(model := request.loaded.model, NetworkModel):
        rows = forecaster.networks.rows(session, [(request, model)])
        return None if too_many_gaps(rows.filled[0]) else _explain_network(session, request.link, model, rows)
    try:
        window = lag_window(session, request, model)
    except TooManyGaps:
        return None
    return _explain_lags(request.link, model, window, datetime.fromisoformat(request.loaded.trained_from))


def _explain_lags(link: LinkInfo, model: TrainedModel, window: Array, trained_from: datetime) -> ModelExplanation:
    rows, weights = model.neighbors(window)
    followed = _continuations(model, window, rows[0])
    order = np.argsort(-weights[0], kind="stable")[:MOST_NEIGHBOURS]
    neighbours = [
        Neighbour(
            link_id=link.link_id,
            slot_start=trained_from + int(model.positions[rows[0][i]]) * timedelta(seconds=link.slot_seconds),
            weight=round(float(weights[0][i]), 6),
            counts=_rounded(followed[i]),
        )
        for i in order
    ]
    return ModelExplanation(neighbours=neighbours, lags=lag_weights(model)[:MOST_LAGS], rank=model.rank)


def _continuations(model: TrainedModel, window: Array, rows: RowIndices) -> Array:
    """Return the counts that each neighbour adds to the forecast, (k, horizons), its level exchanged for today's."""
    level = level_of((window - model.center) / model.scale, model.window)
    followed = model.continuations.values(rows) + level[:, None] * model.level_shares
    return np.asarray(np.maximum(followed * model.scale + model.center, 0.0)[:, :HORIZONS])


def _explain_network(session: Session, link: LinkInfo, model: NetworkModel, rows: NetworkRows) -> ModelExplanation:
    own, network = model.shares.tolist()
    moments = _moments(model, rows)
    came = _counts(session, link, model, moments)
    return ModelExplanation(
        neighbours=[
            Neighbour(
                link_id=model.network.link_ids[moment.link],
                slot_start=instant_of(moment.slot * link.slot_seconds),
                weight=round(moment.weight, 6),
                counts=counts,
                # The errors of the base after that moment, in vehicles of the requested link.
                missed=_rounded(moment.memory.missed.values(np.array([moment.row]))[0, :HORIZONS] * model.scale),
            )
            for moment, counts in zip(moments, came, strict=True)
        ],
        lags=[],
        rank=model.rank,
        context=_context(model, rows),
        shares=MemoryShares(own=own, network=network),
    )


class _Moment(NamedTuple):
    """A remembered moment."""

    memory: LocalMemory
    row: int
    weight: float

    @property
    def link(self) -> int:
        """Return the place of its link in the network."""
        return int(self.memory.links[self.row])

    @property
    def slot(self) -> int:
        """Return the number of the slot that followed it."""
        return int(self.memory.slots[self.row])


def _moments(model: NetworkModel, rows: NetworkRows) -> list[_Moment]:
    """Return the moments that weigh most, of the memories that have a share."""
    network = model.network
    query = network.projected(network.base.standardised(rows.columns[0], 1))[0]
    found = []
    for share, memory in zip(model.shares.tolist(), (model.memory, network.memory), strict=True):
        if share and len(memory):
            near = memory.neighbours(query)
            pairs = zip(near.rows.tolist(), (share * near.weights).tolist(), strict=True)
            found += [_Moment(memory, row, weight) for row, weight in pairs]
    return sorted(found, key=lambda moment: -moment.weight)[:MOST_NEIGHBOURS]


def _counts(
    session: Session, link: LinkInfo, model: NetworkModel, moments: Sequence[_Moment]
) -> list[list[float | None]]:
    """Read the counts of its link after each moment."""
    if not moments:
        return []
    ids = model.network.link_ids
    keys = link_keys(session, {ids[moment.link] for moment in moments})
    wanted = [
        [(keys.get(ids[moment.link], -1), (moment.slot + ahead) * link.slot_seconds) for ahead in range(HORIZONS)]
        for moment in moments
    ]
    spans = [
        and_(Count.link_key == key, Count.slot_start.between(first, last)) for (key, first), *_, (_, last) in wanted
    ]
    query = select(Count.link_key, Count.slot_start, Count.count).where(or_(*spans))
    came = {(key, slot): float(count) for key, slot, count in session.execute(query)}
    return [[came.get(slot) for slot in slots] for slots in wanted]


def _context(model: NetworkModel, rows: NetworkRows) -> list[ContextShare]:
    """Return the vehicles that each part adds to the count that is expected one slot ahead."""
    network, base, scale = model.network, model.network.base, model.scale
    standardised = base.standardised(rows.columns[0], 1)
    adds = standardised[0] * (base.weights[0] + model.own[0]) * scale
    issued: dict[str, float] = {"usual": float(rows.profile[0, 0]) * scale + model.center}
    for (part, _), value in zip(network.parts.columns, adds.tolist(), strict=True):
        issued[part] = issued.get(part, 0.0) + value
    issued["offset"] = float(base.offset[0]) * scale
    issued["correction"] = float(model.correction(standardised)[0, 0]) * scale
    return [ContextShare(part=part, vehicles=round(value, DECIMALS + 3)) for part, value in issued.items()]


def _rounded(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else round(value, DECIMALS) for value in values.tolist()]
