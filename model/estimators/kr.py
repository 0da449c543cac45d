"""KR: Nadaraya-Watson regression over the k nearest neighbours."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from model.estimators.kernel import Array, Memory, Neighborhood, RowIndices, gaussian_weights, weighted_mean
from model.estimators.parameters import LARGEST_VALUE, check_size, number, one_of, whole_number

SPREAD_FACTOR = 10.0


class PreparedData(NamedTuple):
    """Checked and scaled training data."""

    neighborhood: Neighborhood
    inputs: Array  # (n, d), scaled
    targets: Array  # (n,), less their mean
    target_mean: float
    mean: Array  # (d,)
    scale: Array  # (d,)
    standardized: bool


class KR(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RegressorMixin, BaseEstimator):
    """Kernel regression under the Euclidean metric (equations 5 and 6).

    The estimate for an input is the mean of its k nearest training targets, weighted by a Gaussian
    of the distance. Of training rows at the same distance the earlier one is taken first (under a
    learnt metric, the distance is that of the rounded projections); duplicates are not merged. With
    k or fewer training rows all of them are neighbours.

    Parameters
    ----------
    n_neighbors : int, default=30
        k, the number of training rows that an estimate is the mean of.
    bandwidth : float, default=1.0
        sigma of the Gaussian, in scaled inputs.
    standardize : bool or "auto", default="auto"
        Divide each input by its standard deviation. "auto" does so when the largest spread is more
        than ten times the smallest, constant inputs excepted; see ``standardized_``.
    verbose : bool, default=False
        Print whether inputs are standardised and, for the learnt metrics, a line per step.

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
        """Store the scaled training rows.

        Parameters
        ----------
        X : (n, d) array-like, finite
        y : (n,) array-like, finite
        """
        prepared = self._prepare(X, y)
        return self._store_fit(self._learn_components(prepared.inputs), prepared)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Estimate the target of each row of X.

        Parameters
        ----------
        X : (m, d) array-like
        return_std : bool, default=False
            Whether to return the weighted standard deviation of the neighbours' targets as well.

        Returns
        -------
        estimates : (m,) array, or the pair (estimates, spreads)
        """
        rows, distances = self._nearest(X)
        weights = gaussian_weights(distances, self._neighborhood.bandwidth)
        targets = self._targets[rows]
        estimates = weighted_mean(weights, targets)
        if not return_std:
            return estimates + self._target_mean
        spreads = np.sqrt(weighted_mean(weights, (targets - estimates[:, None]) ** 2))
        return estimates + self._target_mean, spreads

    def kneighbors(self, X: ArrayLike) -> tuple[RowIndices, Array]:
        """Return the training rows that each estimate is the mean of, nearest first.

        Returns
        -------
        rows : (m, k) array of training row numbers
        weights : (m, k) array, each row summing to one
        """
        rows, distances = self._nearest(X)
        order = np.lexsort((rows, distances), axis=1)
        rows, distances = np.take_along_axis(rows, order, axis=1), np.take_along_axis(distances, order, axis=1)
        return rows, gaussian_weights(distances, self._neighborhood.bandwidth)

    def transform(self, X: ArrayLike) -> Array:
        """Project inputs to the coordinates in which the metric is Euclidean, (m, rank_)."""
        check_is_fitted(self, "metric_")
        return self._project(self._as_inputs(X))

    def _learn_components(self, inputs: Array) -> Array:
        return np.eye(inputs.shape[1])

    def _prepare(self, X: ArrayLike, y: ArrayLike) -> PreparedData:
        """Check parameters and data and scale the inputs, without changing fitted attributes."""
        neighborhood = Neighborhood(
            whole_number(self, "n_neighbors", at_least=1), number(self, "bandwidth", positive=True)
        )
        standardize = one_of(self, "standardize", (True, False, "auto"))
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        inputs, targets = np.asarray(X), np.asarray(y, dtype=np.float64)
        check_size("X", inputs)
        check_size("y", targets)
        mean, spreads = inputs.mean(axis=0), _spreads(inputs)
        # A constant input's computed spread may be a rounding error instead of zero.
        varying = spreads > 1e-12 * np.abs(mean)
        standardized = _spreads_differ(spreads[varying]) if standardize == "auto" else bool(standardize)
        scale = np.where(varying & standardized, spreads, 1.0)
        if self.verbose:
            print(f"{type(self).__name__}: inputs are {'' if standardized else 'not '}standardised")
        target_mean = float(targets.mean())
        scaled = (inputs - mean) / scale
        return PreparedData(neighborhood, scaled, targets - target_mean, target_mean, mean, scale, standardized)

    def _store_fit(self, components: Array, prepared: PreparedData) -> Self:
        self.components_ = components
        self.metric_ = components.T @ components
        self.rank_ = len(components)
        self.mean_, self.scale_, self.standardized_ = prepared.mean, prepared.scale, prepared.standardized
        self._neighborhood = prepared.neighborhood
        self._targets, self._target_mean = prepared.targets, prepared.target_mean
        self._memory = Memory(prepared.inputs @ components.T)
        return self

    def _nearest(self, X: ArrayLike) -> tuple[RowIndices, Array]:
        check_is_fitted(self, "metric_")
        queries = self._project(self._as_inputs(X))
        return self._memory.nearest(queries, self._neighborhood.n_neighbors)

    def _as_inputs(self, X: ArrayLike) -> Array:
        # A finite float64 array of the right shape skips scikit-learn's checks, which take longer than the estimate.
        if (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and np.abs(X).max() <= LARGEST_VALUE  # false for NaN too
        ):
            return X
        inputs = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        check_size("X", inputs)
        return inputs

    def _project(self, X: Array) -> Array:
        return np.asarray(((X - self.mean_) / self.scale_) @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return int(self.rank_)


def _spreads(inputs: Array) -> Array:
    """Return standard deviations, (d,), scaled so that squares of tiny values do not underflow."""
    sizes = np.abs(inputs).max(axis=0)
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    return np.asarray(sizes * (inputs / sizes).std(axis=0))


def _spreads_differ(spreads: Array) -> bool:
    return len(spreads) > 0 and bool(spreads.max() > SPREAD_FACTOR * spreads.min())
