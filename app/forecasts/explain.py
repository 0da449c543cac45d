"""Why a forecast is what it is: when it looked like this before, and which lags matter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from app.core.times import instant_of
from app.counts.tables import Count
from app.forecasts.compute import Forecaster
from app.forecasts.issued_forecast import IssuedForecast
from app.forecasts.lag_windows import HORIZONS
from app.forecasts.network_context import NetworkRows
from app.forecasts.schemas import ContextShare, Explanation, MemoryShares, Neighbour
from app.links.queries import LinkInfo, link_keys
from app.registry.show import lag_weights
from model.estimators.kernel import Array, Rows
from model.link_model.trained_model import TrainedModel, level_of
from model.network_model.local_memory import LocalMemory
from model.network_model.network import NetworkModel

DECIMALS = 3


def explain_network(session: Session, link: LinkInfo, model: NetworkModel, rows: NetworkRows) -> Explanation:
    """Explain a forecast that was made from these rows."""
    own, network = model.shares.tolist()
    moments = _moments(model, rows)
    came = _counts(session, link, model, moments)
    missed = _missed(model, moments)
    return Explanation(
        neighbours=[
            Neighbour(
                link_id=model.network.link_ids[moment.link],
                slot_start=instant_of(moment.slot * link.slot_seconds),
                weight=round(moment.weight, 6),
                counts=came[i],
                missed=missed[i],
            )
            for i, moment in enumerate(moments)
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
        """Place of its link in the network."""
        return int(self.memory.links[self.row])

    @property
    def slot(self) -> int:
        """Number of the slot that followed it."""
        return int(self.memory.slots[self.row])


def _moments(model: NetworkModel, rows: NetworkRows) -> list[_Moment]:
    """Find the moments that weigh most; where no memory has a share, the link's own with their shares of it."""
    network = model.network
    query = network.projected(network.base.standardised(rows.columns[0], 1))[0]
    shares = model.shares.tolist() if model.shares.any() else [1.0, 0.0]
    found = []
    for share, memory in zip(shares, (model.memory, network.memory), strict=True):
        if share and len(memory):
            near = memory.neighbours(query)
            pairs = zip(near.rows.tolist(), (share * near.weights).tolist(), strict=True)
            found += [_Moment(memory, row, weight) for row, weight in pairs]
    return sorted(found, key=lambda moment: -moment.weight)[:MOST_NEIGHBOURS]


def _missed(model: NetworkModel, moments: Sequence[_Moment]) -> list[list[float | None]]:
    """Return the errors of the base after each moment, in vehicles of the requested link."""
    found = [moment.memory.missed.values(np.array([moment.row]))[0, :HORIZONS] * model.scale for moment in moments]
    return [[None if np.isnan(value) else round(value, DECIMALS) for value in row.tolist()] for row in found]


def _counts(
    session: Session, link: LinkInfo, model: NetworkModel, moments: Sequence[_Moment]
) -> list[list[float | None]]:
    """Look up what came after each moment, as its link counted."""
    ids = model.network.link_ids
    keys = link_keys(session, {ids[moment.link] for moment in moments})
    spans = []
    for moment in moments:
        key, first = keys.get(ids[moment.link]), moment.slot * link.slot_seconds
        if key is not None:
            last = first + (HORIZONS - 1) * link.slot_seconds
            spans.append(and_(Count.link_key == key, Count.slot_start.between(first, last)))
    if not spans:
        return [[None] * HORIZONS for _ in moments]
    question = select(Count.link_key, Count.slot_start, Count.count).where(or_(*spans))
    came = {(key, slot): float(count) for key, slot, count in session.execute(question)}
    return [
        [
            came.get((keys.get(ids[moment.link], -1), (moment.slot + ahead) * link.slot_seconds))
            for ahead in range(HORIZONS)
        ]
        for moment in moments
    ]


def _context(model: NetworkModel, rows: NetworkRows) -> list[ContextShare]:
    """Split the count that is expected one slot ahead into what each part adds, in vehicles."""
    network, base, scale = model.network, model.network.base, model.scale
    standardised = base.standardised(rows.columns[0], 1)
    adds = standardised[0] * (base.weights[0] + model.own[0]) * scale
    issued: dict[str, float] = {"usual": float(rows.usual[0, 0]) * scale + model.center}
    for (part, _), value in zip(network.parts.columns, adds.tolist(), strict=True):
        issued[part] = issued.get(part, 0.0) + value
    issued["offset"] = float(base.offset[0]) * scale
    issued["correction"] = float(model.correction(standardised)[0, 0]) * scale
    return [ContextShare(part=part, vehicles=round(value, DECIMALS + 3)) for part, value in issued.items()]


MOST_NEIGHBOURS = 12
MOST_LAGS = 12


def explain(session: Session, forecaster: Forecaster, issued: IssuedForecast) -> Explanation | None:
    """Explain a forecast; None where no trained model made it."""
    loaded = forecaster.model_of(session, issued)
    if loaded is None:
        return None
    model = loaded.model
    if isinstance(model, NetworkModel):
        context = forecaster.rows_of(session, issued, model)
        return None if context is None else explain_network(session, issued.link, model, context)
    window = forecaster.window_of(session, issued, loaded, model)
    if window is None:
        return None
    rows, weights = model.neighbors(window)
    began = datetime.fromisoformat(loaded.trained_from)
    followed = _continuations(model, window, rows[0])
    order = np.argsort(-weights[0], kind="stable")[:MOST_NEIGHBOURS]
    length = timedelta(seconds=issued.link.slot_seconds)
    neighbours = [
        Neighbour(
            link_id=issued.link.link_id,
            slot_start=began + int(model.positions[rows[0][i]]) * length,
            weight=round(float(weights[0][i]), 6),
            counts=[None if np.isnan(value) else round(float(value), 3) for value in followed[i]],
        )
        for i in order
    ]
    return Explanation(neighbours=neighbours, lags=lag_weights(model)[:MOST_LAGS], rank=model.rank)


def _continuations(model: TrainedModel, window: Array, rows: Rows) -> Array:
    """Return the counts that each neighbour lends to the forecast, (k, horizons), its level exchanged for today's."""
    level = level_of((window - model.center) / model.scale, model.window)
    followed = model.continuations.values(rows) + level[:, None] * model.level_shares
    return np.asarray(np.maximum(followed * model.scale + model.center, 0.0)[:, :HORIZONS])
