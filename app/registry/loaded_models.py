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
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import Depends

from app.http.dependencies import from_state
from app.registry.queries import ArtifactRef
from app.registry.store import ArtifactAway, ModelStore, StoreAway
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import LinkModel, load_model
from model.artifacts.network_models import network_folder, network_of, network_state

RETRY_SECONDS = 60.0  # a damaged artifact may have been put right meanwhile
AWAY_SECONDS = 10.0  # a store that was away comes back by itself
AHEAD = 20  # artifacts that are fetched together where they lie elsewhere

Key = tuple[int, int, str]

Looked = dict[Path, int | None]  # networks, and their files as they were found

log = logging.getLogger("flowcast.models")


class Loaded(NamedTuple):
    """A model in memory, and when its memory begins."""

    version: int
    model: LinkModel
    trained_from: str  # RFC 3339; positions in the model's memory are counted from here


class Damage(NamedTuple):
    """What is wrong with an artifact, until when nobody looks again, and whether only its store is unreachable."""

    reason: str
    until: float
    away: bool

    def as_problem(self, folder: Path) -> DamagedArtifact:
        """Return the error for whoever asks for the model."""
        return (ArtifactAway if self.away else DamagedArtifact)(folder, self.reason)


class _Kept(NamedTuple):
    """A model in memory, and its files as they were when it was read."""

    loaded: Loaded
    folder: Path
    files: list[str]
    state: int | None
    network: Path | None = None
    network_state: int | None = None


class LoadedModels:
    """Loads models ahead or when they are first needed, and lets the least recently used go."""

    def __init__(self, store: ModelStore, *, most: int) -> None:
        self._store, self._most = store, most
        self._models: OrderedDict[Key, _Kept] = OrderedDict()
        self._damaged: dict[Key, Damage] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._models)

    def get(self, place: ArtifactRef, looked: Looked | None = None) -> Loaded:
        """Return a model, or say by ``DamagedArtifact`` what is wrong with its artifact.

        Who asks for many models at once gives one ``looked`` for all, so that each network is looked at once.
        """
        key = _key(place)
        with self._lock:
            kept = self._models.get(key)
            if kept is not None:
                self._models.move_to_end(key)
            damage = self._damaged.get(key)
        if kept is not None:
            if kept.state is not None and _state(kept.files) == kept.state and _network_unchanged(kept, looked):
                return kept.loaded
            if self._store.copies and _copy_left(kept, looked):
                return kept.loaded
            with self._lock:  # somebody touched its files: read and checked again, as if it were new
                self._models.pop(key, None)
        if damage and time.monotonic() < damage.until:
            raise damage.as_problem(self._store.root / place.folder)
        kept = self._load(place, key)
        with self._lock:
            self._damaged.pop(key, None)
            self._models[key] = kept
            while len(self._models) > self._most:
                self._models.popitem(last=False)
        return kept.loaded

    def in_memory(self, link_key: int, version: int) -> Loaded | None:
        """Return a model if it is in memory; its files are not looked at."""
        with self._lock:
            return next((kept.loaded for key, kept in self._models.items() if key[:2] == (link_key, version)), None)

    def prepare(self, places: Collection[ArtifactRef]) -> None:
        """Have the artifacts of models that are not in memory fetched side by side, where they lie elsewhere."""
        if not self._store.copies:
            return
        now = time.monotonic()
        with self._lock:
            absent = [place for place in places if _key(place) not in self._models]
            left = [key for key, damage in self._damaged.items() if now < damage.until]
        wanted = [(place.folder, place.fingerprint) for place in absent if _key(place) not in left]
        if len(wanted) > 1:
            self._store.fetch_many(wanted)

    def load_ahead(self, places: Iterable[ArtifactRef], over: Callable[[], bool]) -> None:
        """Load models before they are asked for, until no more are kept, and rest for as long as each took.

        An artifact that is damaged is taken note of, as if it had been asked for. It ends when it is ``over``, and
        where the store is unreachable: what is missing is loaded when it is needed.
        """
        wanted = list(islice(places, self._most))
        for begin in range(0, len(wanted), AHEAD):
            part = wanted[begin : begin + AHEAD]
            self.prepare(part)
            for place in part:
                if over() or len(self) >= self._most:  # none that was asked for has to leave
                    return
                began = time.monotonic()
                try:
                    self.get(place)
                except ArtifactAway:
                    return
                except DamagedArtifact:
                    continue
                time.sleep(time.monotonic() - began)

    def damaged(self) -> dict[tuple[int, int], str]:
        """Return what is wrong with the versions that could not be loaded, by link key and version."""
        with self._lock:
            return {key[:2]: damage.reason for key, damage in self._damaged.items()}

    def _load(self, place: ArtifactRef, key: Key) -> _Kept:
        try:
            folder = self._store.fetch(place.folder, place.fingerprint)
            try:
                return _read(folder, place)
            except (DamagedArtifact, OSError):
                if not self._store.copies:
                    raise
                return _read(self._store.fetch(place.folder, place.fingerprint, anew=True), place)
        except (OSError, KeyError, ValueError) as problem:  # of which DamagedArtifact is one
            damage = _damage(problem)
            with self._lock:
                before = self._damaged.get(key)
                self._damaged[key] = damage
            if before is None or before.away != damage.away:
                message = "artifact out of reach" if damage.away else "artifact damaged"
                log.error(message, extra={"folder": place.folder, "reason": damage.reason})
            raise damage.as_problem(self._store.root / place.folder) from None


def _key(place: ArtifactRef) -> Key:
    return place.link_key, place.version, place.fingerprint


def _read(folder: Path, place: ArtifactRef) -> _Kept:
    files = [str(file) for file in sorted(folder.iterdir())]
    state = _state(files)  # before reading: what is changed meanwhile is seen next time
    named = network_of(folder)
    network = None if named is None else network_folder(folder, named)
    shared = None if network is None else network_state(network)
    model, about = load_model(folder, fingerprint=place.fingerprint)
    return _Kept(Loaded(place.version, model, str(about["trained_from"])), folder, files, state, network, shared)


def _damage(problem: Exception) -> Damage:
    away = isinstance(problem, StoreAway)
    reason = str(problem) if away else type(problem).__name__
    if isinstance(problem, DamagedArtifact):
        reason = problem.reason
    return Damage(reason, time.monotonic() + (AWAY_SECONDS if away else RETRY_SECONDS), away)


def _copy_left(kept: _Kept, looked: Looked | None) -> bool:
    """Return whether copies of a store's artifacts are unchanged, or gone as a whole: mapped arrays are then sound."""
    own = not kept.folder.exists() or (kept.state is not None and _state(kept.files) == kept.state)
    return own and (_network_unchanged(kept, looked) or not (kept.network and kept.network.exists()))


def _network_unchanged(kept: _Kept, looked: Looked | None) -> bool:
    if kept.network is None:
        return True
    if looked is None:
        looked = {}
    if kept.network not in looked:
        looked[kept.network] = network_state(kept.network)
    return kept.network_state is not None and looked[kept.network] == kept.network_state


def _state(files: list[str]) -> int | None:
    """Return a number that differs once one of the files is replaced, resized or newer; None where one is gone."""
    try:
        return hash(tuple([(file.st_ino, file.st_size, file.st_mtime_ns) for file in map(os.stat, files)]))
    except OSError:
        return None


LoadedModelsDep = Annotated[LoadedModels, Depends(from_state("loaded_models"))]
