"""The parameters of training a network, with their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from model.estimators.parameters import number, whole_number
from model.network_model.context import ContextParts


@dataclass(frozen=True)
class NetworkPlan:
    """Parameters of training a network.

    Parameters
    ----------
    parts : ContextParts
    horizons : int
    held_out_days : int
        The last days, on which penalties, metric and shares are chosen and accuracy is measured.
    memory_days : int
        Number of latest days that profiles and memories are learnt from.
    level : float
        The nominal share of counts inside the interval.
    ridge, own_ridge, alone_ridge : sequences of float
        Candidates for the penalty of the base, of a link's additions to it, and of a link without it.
    mu : sequence of float
        Candidates for the weight of the metric's trace.
    max_iter : int
        Largest number of steps of the metric.
    most_rank : int
        Largest rank of the metric.
    n_neighbors : int
        Number of neighbours in a link's own memory; ten times as many in the network's.
    metric_rows, network_rows : int
        Largest numbers of rows to learn the metric from, and in the network's memory.
    """

    parts: ContextParts = field(default_factory=ContextParts)
    horizons: int = 4
    held_out_days: int = 7
    memory_days: int = 56
    level: float = 0.9
    ridge: Sequence[float] = (300.0, 3000.0, 30_000.0, 300_000.0)
    own_ridge: Sequence[float] = (3000.0, 10_000.0, 30_000.0)
    alone_ridge: Sequence[float] = (300.0, 1000.0, 3000.0, 10_000.0)
    mu: Sequence[float] = (3e-3, 3e-4)
    max_iter: int = 10
    most_rank: int = 8
    n_neighbors: int = 200
    metric_rows: int = 2400
    network_rows: int = 20000
    random_state: int = 0

    def __post_init__(self) -> None:
        names = ("horizons", "held_out_days", "memory_days", "most_rank", "n_neighbors", "metric_rows", "network_rows")
        for name in names:
            whole_number(self, name, at_least=1)
        whole_number(self, "max_iter", at_least=0)
        for name in ("ridge", "own_ridge", "alone_ridge", "mu"):
            if not getattr(self, name):
                raise ValueError(f"{name}={getattr(self, name)!r} is refused; at least one candidate is needed")
            for candidate in getattr(self, name):
                number(self, name, candidate, positive=name != "mu")
        if not 0.0 < number(self, "level", positive=True) < 1.0:
            raise ValueError(f"level={self.level!r} is refused; it must be between 0 and 1")
