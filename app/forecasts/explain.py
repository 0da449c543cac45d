"""Why a forecast says what it says: when it looked like this before, and which lags matter."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
from sqlalchemy.orm import Session

from app.forecasts.compute import Forecaster, IssuedForecast
from app.forecasts.explain_network import explain_network
from app.forecasts.lag_windows import HORIZONS
from app.forecasts.schemas import Explanation, Neighbour
from app.registry.shelf import lag_weights
from model.estimators.kernel import Array, Rows
from model.link_model.trained_model import TrainedModel, level_of
from model.network_model.network import NetworkModel

MOST_NEIGHBOURS = 12
MOST_LAGS = 12


def explain(session: Session, forecaster: Forecaster, said: IssuedForecast) -> Explanation | None:
    """Explain a statement; None where no trained model spoke."""
    loaded = forecaster.model_of(session, said)
    if loaded is None:
        return None
    model = loaded.model
    if isinstance(model, NetworkModel):
        context = forecaster.rows_of(session, said, model)
        return None if context is None else explain_network(session, said.link, model, context)
    window = forecaster.window_of(session, said, loaded, model)
    if window is None:
        return None
    rows, weights = model.neighbors(window)
    began = datetime.fromisoformat(loaded.trained_from)
    followed = _continuations(model, window, rows[0])
    order = np.argsort(-weights[0], kind="stable")[:MOST_NEIGHBOURS]
    length = timedelta(seconds=said.link.slot_seconds)
    neighbours = [
        Neighbour(
            link_id=said.link.link_id,
            slot_start=began + int(model.positions[rows[0][i]]) * length,
            weight=round(float(weights[0][i]), 6),
            counts=[None if np.isnan(value) else round(float(value), 3) for value in followed[i]],
        )
        for i in order
    ]
    return Explanation(neighbours=neighbours, lags=lag_weights(model)[:MOST_LAGS], rank=model.rank)


def _continuations(model: TrainedModel, window: Array, rows: Rows) -> Array:
    """Give the counts that each neighbour lends to the forecast, (k, horizons), its level exchanged for today's."""
    level = level_of((window - model.center) / model.scale, model.window)
    followed = model.continuations.values(rows) + level[:, None] * model.level_shares
    return np.asarray(np.maximum(followed * model.scale + model.center, 0.0)[:, :HORIZONS])
