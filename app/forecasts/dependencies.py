"""The cache of forecasts, as routes get it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from app.forecasts.board import ForecastBoard
from app.http.dependencies import from_state

ForecastCacheDep = Annotated[ForecastBoard, Depends(from_state("forecast_cache"))]
