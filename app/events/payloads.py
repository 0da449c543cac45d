"""The payloads of events, the same for server-sent events and webhooks."""

from __future__ import annotations

from typing import Any

from app.forecasts.issued_forecast import HORIZONS, Document, IssuedForecast, listed_document
from app.registry.tables import Activation
from app.training.schemas import ActivationOut

FORECAST, ACTIVATION = "forecast", "activation"  # the types of events


def forecast_event(issued: IssuedForecast, now: int) -> Document:
    """Return a link's forecast, all horizons, as ``GET /v1/forecasts`` has it, with its sequence number.

    The number is that of the slot the forecast was made as of, counted from 1970. It needs no counter, is the same
    in every process, and a slot without an event is a gap in it.
    """
    age = max(0, now - issued.as_of - issued.link.slot_seconds)
    return {"sequence": issued.as_of // issued.link.slot_seconds, **listed_document(issued, HORIZONS, age)}


def activation_event(row: Activation, link_id: str) -> dict[str, Any]:
    """Return an activation as ``GET /v1/admin/links/{link_id}/activations`` has it."""
    return ActivationOut.of(row, link_id).model_dump(mode="json")
