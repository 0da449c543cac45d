"""The cache of forecasts, as routes get it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from app.forecasts.cache import ForecastCache
from app.http.dependencies import from_state

ForecastCacheDep = Annotated[ForecastCache, Depends(from_state("forecast_cache"))]
