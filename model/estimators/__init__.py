"""Kernel regression estimators in scikit-learn's interface: KR, KR_PCA, MLKR and KR_SML."""
