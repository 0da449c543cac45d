"""The parameters of training a link, with their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.estimators.parameters import number, whole_number
from model.link_model.lag_window import LagWindow
from model.link_model.trained_model import ALGORITHMS


@dataclass(frozen=True)
class TrainingPlan:
    """Parameters of training, the same for every link and stored with the model.

    Parameters
    ----------
    algorithm : "KR_SML", "MLKR", "KR" or "KR_PCA"
    lags : int or sequence of int
    n_neighbors, bandwidth
        As for the estimators.
    horizons : int
        Number of slots ahead to forecast.
    held_out_days : int
        The last days of the span, on which mu, the number of steps and the share of the level are
        chosen and the accuracy is measured.
    exclusion_days : float
        Rows this close in time are not neighbours while learning.
    mu : sequence of float
        Candidates for KR_SML.
    max_iter : int
        Largest number of steps of a learnt metric.
    level : float
        The nominal share of counts inside the interval.
    """

    algorithm: str = "KR_SML"
    lags: int | Sequence[int] = 45
    n_neighbors: int = 20
    bandwidth: float = 1.0
    horizons: int = 4
    held_out_days: int = 7
    exclusion_days: float = 1.0
    mu: Sequence[float] = (3e-3, 3e-4)
    max_iter: int = 25
    level: float = 0.9

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm={self.algorithm!r} is refused; it must be one of {', '.join(ALGORITHMS)}")
        for name in ("n_neighbors", "horizons", "held_out_days"):
            whole_number(self, name, at_least=1)
        whole_number(self, "max_iter", at_least=0)
        number(self, "bandwidth", positive=True)
        number(self, "exclusion_days", positive=False)
        for candidate in self.mu:
            number(self, "mu", candidate, positive=False)
        if not 0.0 < number(self, "level", positive=True) < 1.0:
            raise ValueError(f"level={self.level!r} is refused; it must be between 0 and 1")
        LagWindow(self.lags)
