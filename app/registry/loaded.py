"""Trained models in memory: the ones used of late, their arrays mapped from disk and shared between processes."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from app.registry.queries import Place
from model.artifact import DamagedArtifact
from model.stored_model import load_model
from model.trained_model import TrainedModel

RETRY_SECONDS = 60.0  # a damaged artifact may have been put right meanwhile

log = logging.getLogger("flowcast.models")


class Loaded(NamedTuple):
    """A model in memory, and when its memory begins."""

    version: int
    model: TrainedModel
    trained_from: str  # RFC 3339; positions in the model's memory are counted from here


class Damage(NamedTuple):
    """What is wrong with an artifact, and when that was found."""

    reason: str
    found: float


class LoadedModels:
    """Loads models when they are first needed and lets the least recently used go."""

    def __init__(self, store: Path, *, most: int) -> None:
        self._store, self._most = store, most
        self._models: OrderedDict[tuple[int, int, str], Loaded] = OrderedDict()
        self._damaged: dict[tuple[int, int, str], Damage] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._models)

    def get(self, place: Place) -> Loaded:
        """Give a model, or say by ``DamagedArtifact`` what is wrong with its artifact."""
        key = (place.link_key, place.version, place.fingerprint)
        with self._lock:
            if key in self._models:
                self._models.move_to_end(key)
                return self._models[key]
            damage = self._damaged.get(key)
        if damage and time.monotonic() < damage.found + RETRY_SECONDS:
            raise DamagedArtifact(self._store / place.folder, damage.reason)
        loaded = self._load(place, key)
        with self._lock:
            self._damaged.pop(key, None)
            self._models[key] = loaded
            while len(self._models) > self._most:
                self._models.popitem(last=False)
        return loaded

    def damaged(self) -> dict[tuple[int, int], str]:
        """Say what is wrong with which link's which version, as far as it was tried."""
        with self._lock:
            return {key[:2]: damage.reason for key, damage in self._damaged.items()}

    def _load(self, place: Place, key: tuple[int, int, str]) -> Loaded:
        folder = self._store / place.folder
        try:
            model, about = load_model(folder, fingerprint=place.fingerprint)
            return Loaded(place.version, model, str(about["trained_from"]))
        except (DamagedArtifact, OSError, KeyError) as problem:
            reason = problem.reason if isinstance(problem, DamagedArtifact) else type(problem).__name__
            with self._lock:
                news = key not in self._damaged
                self._damaged[key] = Damage(reason, time.monotonic())
            if news:
                log.error("artifact damaged", extra={"folder": place.folder, "reason": reason})
            raise DamagedArtifact(folder, reason) from None
