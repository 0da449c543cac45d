"""Kernel regression with learnt metrics, as scikit-learn estimators, and the models of links and networks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.estimators.kr import KR
    from model.estimators.kr_pca import KR_PCA
    from model.estimators.kr_sml import KR_SML
    from model.estimators.mlkr import MLKR
    from model.link_model.lag_window import LagWindow

__all__ = ["KR", "KR_PCA", "KR_SML", "MLKR", "LagWindow"]

# Imported on first use, because scikit-learn more than doubles the memory of a process that only forecasts.
_MODULES = {
    "KR": "estimators.kr",
    "KR_PCA": "estimators.kr_pca",
    "KR_SML": "estimators.kr_sml",
    "MLKR": "estimators.mlkr",
    "LagWindow": "link_model.lag_window",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
