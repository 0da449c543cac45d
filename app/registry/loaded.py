"""Trained models in memory: the ones used of late, their arrays mapped from disk and shared between processes.

What is mapped changes with its file, and to read past the end of one that was cut short ends the process. So
before a model speaks, its files are looked at: 16 µs, once for every forecast issued. The files that the
links of a network share are looked at once for all forecasts issued together.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from app.registry.queries import Place
from model.artifact import DamagedArtifact
from model.network.stored import network_folder, network_of, network_state
from model.stored_model import LinkModel, load_model

RETRY_SECONDS = 60.0  # a damaged artifact may have been put right meanwhile

Looked = dict[Path, int | None]  # networks, and their files as they were found

log = logging.getLogger("flowcast.models")


class Loaded(NamedTuple):
    """A model in memory, and when its memory begins."""

    version: int
    model: LinkModel
    trained_from: str  # RFC 3339; positions in the model's memory are counted from here


class Damage(NamedTuple):
    """What is wrong with an artifact, and when that was found."""

    reason: str
    found: float


class _Kept(NamedTuple):
    """A model in memory, and its files as they were when it was read."""

    loaded: Loaded
    files: list[str]
    state: int | None
    network: Path | None = None
    network_state: int | None = None


class LoadedModels:
    """Loads models when they are first needed and lets the least recently used go."""

    def __init__(self, store: Path, *, most: int) -> None:
        self._store, self._most = store, most
        self._models: OrderedDict[tuple[int, int, str], _Kept] = OrderedDict()
        self._damaged: dict[tuple[int, int, str], Damage] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._models)

    def get(self, place: Place, looked: Looked | None = None) -> Loaded:
        """Give a model, or say by ``DamagedArtifact`` what is wrong with its artifact.

        Who asks for many models at once gives one ``looked`` for all, so that each network is looked at once.
        """
        key = (place.link_key, place.version, place.fingerprint)
        with self._lock:
            kept = self._models.get(key)
            if kept is not None:
                self._models.move_to_end(key)
            damage = self._damaged.get(key)
        if kept is not None:
            if kept.state is not None and _state(kept.files) == kept.state and _network_unchanged(kept, looked):
                return kept.loaded
            with self._lock:  # somebody touched its files: read and checked again, as if it were new
                self._models.pop(key, None)
        if damage and time.monotonic() < damage.found + RETRY_SECONDS:
            raise DamagedArtifact(self._store / place.folder, damage.reason)
        kept = self._load(place, key)
        with self._lock:
            self._damaged.pop(key, None)
            self._models[key] = kept
            while len(self._models) > self._most:
                self._models.popitem(last=False)
        return kept.loaded

    def damaged(self) -> dict[tuple[int, int], str]:
        """Say what is wrong with which link's which version, as far as it was tried."""
        with self._lock:
            return {key[:2]: damage.reason for key, damage in self._damaged.items()}

    def _load(self, place: Place, key: tuple[int, int, str]) -> _Kept:
        folder = self._store / place.folder
        try:
            files = [str(file) for file in sorted(folder.iterdir())]
            state = _state(files)  # before reading: what is changed meanwhile is seen next time
            named = network_of(folder)
            network = None if named is None else network_folder(folder, named)
            shared = None if network is None else network_state(network)
            model, about = load_model(folder, fingerprint=place.fingerprint)
            return _Kept(Loaded(place.version, model, str(about["trained_from"])), files, state, network, shared)
        except (DamagedArtifact, OSError, KeyError) as problem:
            reason = problem.reason if isinstance(problem, DamagedArtifact) else type(problem).__name__
            with self._lock:
                news = key not in self._damaged
                self._damaged[key] = Damage(reason, time.monotonic())
            if news:
                log.error("artifact damaged", extra={"folder": place.folder, "reason": reason})
            raise DamagedArtifact(folder, reason) from None


def _network_unchanged(kept: _Kept, looked: Looked | None) -> bool:
    if kept.network is None:
        return True
    if looked is None:
        looked = {}
    if kept.network not in looked:
        looked[kept.network] = network_state(kept.network)
    return kept.network_state is not None and looked[kept.network] == kept.network_state


def _state(files: list[str]) -> int | None:
    """Give a number that differs once one of the files is another, longer, shorter or newer; None where one is gone."""
    try:
        return hash(tuple([(file.st_ino, file.st_size, file.st_mtime_ns) for file in map(os.stat, files)]))
    except OSError:
        return None
