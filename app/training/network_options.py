"""How to train links in their networks: what a caller may choose, checked by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from app.core.network_calendar import AUTO
from app.training.network_stage import NETWORK
from model.link_model.training_plan import TrainingPlan
from model.network_model.context import ContextParts
from model.network_model.plan import NetworkPlan

BEST = "best"
ALGORITHMS = (NETWORK, BEST)
SHARED = ("horizons", "held_out_days", "level", "max_iter", "mu")  # parameters that mean the same to both plans
OF_NETWORKS = ("days", "context")  # those that a link by itself has no use for


@dataclass(frozen=True)
class NetworkTraining:
    """How to train links in their networks.

    Parameters
    ----------
    algorithm : "NETWORK" or "best"
    network : NetworkPlan
    alone : TrainingPlan
        For KR_SML on lags and KR; its held-out days are those that everything is measured on.
    holidays : str
        As the setting has it: auto, off, a country or a part of one.
    """

    algorithm: str = BEST
    network: NetworkPlan = field(default_factory=NetworkPlan)
    alone: TrainingPlan = field(default_factory=TrainingPlan)
    holidays: str = AUTO

    @classmethod
    def of(cls, algorithm: str, parameters: Mapping[str, Any], holidays: str = AUTO) -> NetworkTraining:
        """Make both plans from parameters by name.

        ``days`` is how much past memories keep, ``context`` which parts a row is made of.
        """
        shared = {name: value for name, value in parameters.items() if name in SHARED}
        if parameters.get("days"):
            shared["memory_days"] = parameters["days"]
        if parameters.get("context") is not None:
            shared["parts"] = ContextParts.named(parameters["context"])
        alone = {name: value for name, value in parameters.items() if name not in OF_NETWORKS}
        return cls(algorithm, NetworkPlan(**shared), TrainingPlan(**alone), holidays)

    def as_json(self) -> dict[str, Any]:
        """Return the network's plan as it is kept with a model."""
        given = asdict(self.network) | {"parts": self.network.parts.names, "algorithm": NETWORK}
        given["held_out_days"] = self.alone.held_out_days
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
