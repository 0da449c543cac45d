"""KR_PCA: kernel regression on the leading principal components."""

from __future__ import annotations

from numbers import Integral
from typing import Literal

import numpy as np
from sklearn.decomposition import PCA

from model.estimators.kernel import Array
from model.estimators.kr import KR
from model.estimators.parameters import number, whole_number


class KR_PCA(KR):
    """Kernel regression on the leading principal components of the inputs.

    Parameters
    ----------
    n_components : float or int, default=0.95
        A number below one is the share of the inputs' variance to keep, a whole number the number of
        components. Constant inputs have one component.
    n_neighbors, bandwidth, standardize, verbose
        As for :class:`~model.KR`.

    Attributes
    ----------
    explained_variance_ratio_ : (rank_,) array
        Share of the inputs' variance along each kept component.
    metric_, components_, rank_, mean_, scale_, standardized_
        As for :class:`~model.KR`; ``components_`` holds the principal directions in its rows.
    """

    def __init__(
        self,
        *,
        n_components: float = 0.95,
        n_neighbors: int = 30,
        bandwidth: float = 1.0,
        standardize: bool | Literal["auto"] = "auto",
        verbose: bool = False,
    ) -> None:
        super().__init__(n_neighbors=n_neighbors, bandwidth=bandwidth, standardize=standardize, verbose=verbose)
        self.n_components = n_components

    def _learn_components(self, inputs: Array) -> Array:
        most = min(inputs.shape)
        keep: float
        if isinstance(self.n_components, Integral):
            keep = whole_number(self, "n_components", at_least=1)
            if keep > most:
                raise ValueError(
                    f"KR_PCA: n_components={keep} is refused; n_samples={len(inputs)} rows of "
                    f"{inputs.shape[1]} inputs have at most {most} components"
                )
        else:
            keep = number(self, "n_components", positive=True)
            if keep >= 1.0:
                raise ValueError(
                    f"KR_PCA: n_components={keep} is refused; a share of variance must be below 1, "
                    f"a number of components a whole number"
                )
        if len(inputs) == 1 or not inputs.any():  # without variance there are no shares of it
            self.explained_variance_ratio_ = np.zeros(1)
            return np.eye(1, inputs.shape[1])
        pca = PCA(n_components=keep, svd_solver="full").fit(inputs)
        self.explained_variance_ratio_ = pca.explained_variance_ratio_
        return np.asarray(pca.components_)
