"""Kernel regression with learnt metrics: NumPy in, NumPy out, scikit-learn estimators."""

from model.kr import KR
from model.kr_pca import KR_PCA
from model.kr_sml import KR_SML
from model.lag_window import LagWindow
from model.mlkr import MLKR

__all__ = ["KR", "KR_PCA", "KR_SML", "MLKR", "LagWindow"]
