"""Kernel regression with learnt metrics: NumPy in, NumPy out, scikit-learn estimators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.kr import KR
    from model.kr_pca import KR_PCA
    from model.kr_sml import KR_SML
    from model.lag_window import LagWindow
    from model.mlkr import MLKR

__all__ = ["KR", "KR_PCA", "KR_SML", "MLKR", "LagWindow"]

# Looked up when first asked for: a process that only forecasts needs no scikit-learn, which would
# more than double its memory.
_MODULES = {"KR": "kr", "KR_PCA": "kr_pca", "KR_SML": "kr_sml", "MLKR": "mlkr", "LagWindow": "lag_window"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
