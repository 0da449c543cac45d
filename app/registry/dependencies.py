"""The loaded models, as routes get them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from app.http.dependencies import from_state
from app.registry.loaded_models import LoadedModels

LoadedModelsDep = Annotated[LoadedModels, Depends(from_state("loaded_models"))]
