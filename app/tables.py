"""All tables in one place, for migrations and for whoever needs them all."""

from __future__ import annotations

from app.counts.tables import Count, CountCorrection
from app.database import Table
from app.forecasts.tables import Forecast
from app.keys.tables import ApiKey
from app.links.tables import Link, UpstreamLink
from app.registry.tables import ShelvedModel

__all__ = ["ApiKey", "Count", "CountCorrection", "Forecast", "Link", "ShelvedModel", "Table", "UpstreamLink"]
