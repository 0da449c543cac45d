"""All tables in one place, for migrations and for whoever needs them all."""

from __future__ import annotations

from app.core.database import Table
from app.counts.tables import Count, CountCorrection
from app.events.tables import Webhook
from app.forecasts.tables import Forecast
from app.keys.tables import ApiKey, AuditEntry
from app.links.tables import Link, UpstreamLink
from app.maintenance.tables import Upkeep
from app.registry.tables import Activation, ModelVersion
from app.training.tables import RetrainLink, RetrainRun

__all__ = [
    "Activation",
    "ApiKey",
    "AuditEntry",
    "Count",
    "CountCorrection",
    "Forecast",
    "Link",
    "ModelVersion",
    "RetrainLink",
    "RetrainRun",
    "Table",
    "Upkeep",
    "UpstreamLink",
    "Webhook",
]
