"""KR: Nadaraya-Watson regression over the k nearest neighbours."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from model.kernel import Array, Memory, Neighborhood, Rows, gaussian_weights, weighted_mean
from model.parameters import number, one_of, whole_number

SPREAD_FACTOR = 10.0


class KR(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RegressorMixin, BaseEstimator):
    """Kernel regression under the Euclidean metric (equations 5 and 6).

    An input's estimate is the mean of its k nearest training targets, weighted by a Gaussian of
    the distance. Of training rows at the same distance the one that came first is taken first;
    duplicates are rows like any other. With k or fewer training rows all of them are neighbours.

    Parameters
    ----------
    n_neighbors : int, default=30
        k, how many training rows an estimate is made of.
    bandwidth : float, default=1.0
        sigma of the Gaussian, in scaled inputs.
    standardize : bool or "auto", default="auto"
        Divide each input by its standard deviation. "auto" does so when the largest spread is more
        than ten times the smallest (constant inputs left aside); ``standardized_`` tells.
    verbose : bool, default=False
        Print what was decided and, for the learnt metrics, a line per step.

    Attributes
    ----------
    metric_ : (d, d) array
        M, acting on scaled inputs; here the identity.
    components_ : (rank_, d) array
        A, one row per rank, with A.T @ A = M.
    rank_ : int
    mean_, scale_ : (d,) arrays
        ``transform(X) = ((X - mean_) / scale_) @ components_.T``.
    standardized_ : bool
    n_features_in_ : int

    References
    ----------
    Huang and Sun, "Kernel Regression with Sparse Metric Learning", section 2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from model import KR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> KR(n_neighbors=5).fit(X, np.sin(X[:, 0])).predict([[1.5]]).round(2)
    array([1.])
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 30,
        bandwidth: float = 1.0,
        standardize: bool | Literal["auto"] = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth
        self.standardize = standardize
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Keep the training rows, scaled, as the memory estimates are made from.

        Parameters
        ----------
        X : (n, d) array-like, finite
        y : (n,) array-like, finite
        """
        inputs, targets = self._start_fit(X, y)
        self._keep(self._learn(inputs), inputs, targets)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Estimate the target of each row of X.

        Parameters
        ----------
        X : (m, d) array-like
        return_std : bool, default=False
            Return as well the weighted spread of the neighbours' targets.

        Returns
        -------
        estimates : (m,) array, or the pair (estimates, spreads)
        """
        rows, weights = self._weigh(X)
        targets = self._targets[rows]
        estimates = weighted_mean(weights, targets)
        if not return_std:
            return estimates + self._target_mean
        spreads = np.sqrt(weighted_mean(weights, (targets - estimates[:, None]) ** 2))
        return estimates + self._target_mean, spreads

    def kneighbors(self, X: ArrayLike) -> tuple[Rows, Array]:
        """Tell which training rows an estimate is made of, nearest first.

        Returns
        -------
        rows : (m, k) array of training row numbers
        weights : (m, k) array, each line summing to one
        """
        rows, weights = self._weigh(X)
        order = np.lexsort((rows, -weights), axis=1)
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(weights, order, axis=1)

    def transform(self, X: ArrayLike) -> Array:
        """Reduce inputs to the coordinates in which the metric is Euclidean, (m, rank_)."""
        check_is_fitted(self)
        return self._project(self._as_inputs(X))

    def _learn(self, inputs: Array) -> Array:
        return np.eye(inputs.shape[1])

    def _start_fit(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        """Check parameters and data; return scaled inputs (n, d) and targets less their mean (n,)."""
        self._neighborhood = Neighborhood(
            whole_number(self, "n_neighbors", at_least=1), number(self, "bandwidth", above=0.0)
        )
        standardize = one_of(self, "standardize", (True, False, "auto"))
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        inputs, targets = np.asarray(X), np.asarray(y, dtype=np.float64)
        self.mean_ = inputs.mean(axis=0)
        spreads = inputs.std(axis=0)
        # A constant input's computed spread may be a rounding error instead of zero.
        varying = spreads > 1e-12 * np.abs(self.mean_)
        self.standardized_ = _spreads_differ(spreads[varying]) if standardize == "auto" else bool(standardize)
        self.scale_ = np.where(varying & self.standardized_, spreads, 1.0)
        self._target_mean = float(targets.mean())
        if self.verbose:
            print(f"{type(self).__name__}: inputs are {'' if self.standardized_ else 'not '}standardised")
        return (inputs - self.mean_) / self.scale_, targets - self._target_mean

    def _keep(self, components: Array, inputs: Array, targets: Array) -> None:
        self.components_ = components
        self.metric_ = components.T @ components
        self.rank_ = len(components)
        self._targets = targets
        self._memory = Memory(inputs @ components.T)

    def _weigh(self, X: ArrayLike) -> tuple[Rows, Array]:
        check_is_fitted(self)
        queries = self._project(self._as_inputs(X))
        rows, distances = self._memory.nearest(queries, self._neighborhood.n_neighbors)
        return rows, gaussian_weights(distances, self._neighborhood.bandwidth)

    def _as_inputs(self, X: ArrayLike) -> Array:
        # A plain finite float64 array of the right shape, the service's only kind, skips
        # scikit-learn's checks: they would take longer than the estimate.
        if (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and np.isfinite(X.sum())
        ):
            return X
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _project(self, X: Array) -> Array:
        return np.asarray(((X - self.mean_) / self.scale_) @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return int(self.rank_)


def _spreads_differ(spreads: Array) -> bool:
    return len(spreads) > 0 and bool(spreads.max() > SPREAD_FACTOR * spreads.min())
