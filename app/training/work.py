"""A run under way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from app.registry.open_store import open_store
from app.registry.queries import ArtifactRef
from app.registry.store import ModelStore
from app.settings import Settings
from app.training.cluster import Cluster
from app.training.network_options import ALGORITHMS, NetworkTraining
from app.training.request import DEFAULT_DAYS, REFRESH
from app.training.tables import RetrainRun
from model.artifacts.artifact import DamagedArtifact
from model.link_model.training_plan import TrainingPlan


@dataclass(frozen=True)
class Work:
    """A run under way, and what it takes to carry it out."""

    engine: Engine
    settings: Settings
    run: RetrainRun
    worker: str
    cluster: Cluster | None = None

    @property
    def store(self) -> ModelStore:
        """The artifacts' store."""
        return open_store(self.settings)

    def artifact(self, place: ArtifactRef) -> Path:
        """Return the folder of a model's artifact on this machine; one that is damaged is found so by who reads it."""
        try:
            return self.store.fetch(place.folder, place.fingerprint)
        except DamagedArtifact:
            return self.store.path(place.folder)

    @property
    def refreshes(self) -> bool:
        """Whether counts are to join memories, and nothing is to be learnt anew."""
        return bool(self.run.parameters.get(REFRESH))

    @property
    def in_networks(self) -> bool:
        """Whether links learn from each other."""
        return self.run.algorithm in ALGORITHMS

    @property
    def days(self) -> int:
        """How much past to learn from."""
        return int(self.run.parameters.get("days", DEFAULT_DAYS))

    def plan(self) -> TrainingPlan:
        """Return the plan of training links by themselves."""
        return TrainingPlan(algorithm=self.run.algorithm, **self._given())

    def network_training(self) -> NetworkTraining:
        """Return the options of training links in their networks."""
        return NetworkTraining.of(self.run.algorithm, self._given() | {"days": self.days}, self.settings.holidays)

    def _given(self) -> dict[str, Any]:
        given = {name: value for name, value in self.run.parameters.items() if name not in ("days", REFRESH)}
        return given | ({"mu": tuple(given["mu"])} if "mu" in given else {})
