"""A cache of trained models, whose arrays are mapped from disk and shared between processes.

A mapped array changes with its file, and reading beyond the end of a shortened file ends the process. So the files
of a model, and of its network, are checked before each use, which takes microseconds.
"""

from __future__ import annotations

import logging
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
from app.registry.store import ArtifactUnreachable, ModelStore, StoreUnreachable
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import LinkModel, load_model
from model.artifacts.network_models import folder_state, network_folder, network_of

RETRY_SECONDS = 60.0  # a damaged artifact may have been repaired meanwhile
UNREACHABLE_SECONDS = 10.0  # an unreachable store comes back by itself
AHEAD = 20  # artifacts that are fetched together from a bucket

log = logging.getLogger("flowcast.models")


class LoadedModel(NamedTuple):
    """A model in memory, and when its memory begins."""

    version: int
    model: LinkModel
    trained_from: str  # RFC 3339; positions in the model's memory are counted from here


class Damage(NamedTuple):
    """The reason why an artifact cannot be loaded, the time of the next attempt, and whether only its store fails."""

    reason: str
    until: float
    unreachable: bool

    def as_problem(self, folder: Path) -> DamagedArtifact:
        """Return the error to raise where the model is needed."""
        return (ArtifactUnreachable if self.unreachable else DamagedArtifact)(folder, self.reason)


class _Kept(NamedTuple):
    loaded: LoadedModel
    states: dict[Path, int | None]  # of its folder and its network's, as they were when it was read


class LoadedModels:
    """Loads models ahead or when they are first needed, and drops the least recently used."""

    def __init__(self, store: ModelStore, *, most: int) -> None:
        self._store, self._most = store, most
        self._models: OrderedDict[ArtifactRef, _Kept] = OrderedDict()
        self._damaged: dict[ArtifactRef, Damage] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._models)

    def get(self, ref: ArtifactRef) -> LoadedModel:
        """Return a model; raise ``DamagedArtifact`` with the reason if its artifact cannot be loaded."""
        with self._lock:
            kept, damage = self._models.get(ref), self._damaged.get(ref)
            if kept is not None:
                self._models.move_to_end(ref)
        if kept is not None:
            if self._is_unchanged(kept):
                return kept.loaded
            with self._lock:  # its files were written: read and checked again, as if it were new
                self._models.pop(ref, None)
        if damage and time.monotonic() < damage.until:
            raise damage.as_problem(self._store.root / ref.folder)
        kept = self._load(ref)
        with self._lock:
            self._damaged.pop(ref, None)
            self._models[ref] = kept
            while len(self._models) > self._most:
                self._models.popitem(last=False)
        return kept.loaded

    def in_memory(self, link_key: int, version: int) -> LoadedModel | None:
        """Return a model if it is in memory; its files are not checked."""
        with self._lock:
            return next((kept.loaded for ref, kept in self._models.items() if ref[:2] == (link_key, version)), None)

    def prepare(self, refs: Collection[ArtifactRef]) -> None:
        """Fetch the artifacts of models that are not in memory side by side, where the store is a bucket."""
        if not self._store.copies:
            return
        now = time.monotonic()
        with self._lock:
            known = self._models.keys() | {ref for ref, damage in self._damaged.items() if now < damage.until}
        wanted = [(ref.folder, ref.fingerprint) for ref in refs if ref not in known]
        if len(wanted) > 1:
            self._store.fetch_many(wanted)

    def load_ahead(self, refs: Iterable[ArtifactRef], over: Callable[[], bool]) -> None:
        """Load models before they are needed, up to the size of the cache, and pause for as long as each took.

        Damage is recorded as in ``get``. Loading ends when ``over`` returns True or the store is unreachable.
        """
        wanted = list(islice(refs, self._most))
        for begin in range(0, len(wanted), AHEAD):
            part = wanted[begin : begin + AHEAD]
            self.prepare(part)
            for ref in part:
                if over() or len(self) >= self._most:  # a model that was needed is not dropped for one that may be
                    return
                began = time.monotonic()
                try:
                    self.get(ref)
                except ArtifactUnreachable:
                    return
                except DamagedArtifact:
                    continue
                time.sleep(time.monotonic() - began)

    def damaged(self) -> dict[tuple[int, int], str]:
        """Return why versions could not be loaded, by link key and version."""
        with self._lock:
            return {ref[:2]: damage.reason for ref, damage in self._damaged.items()}

    def _is_unchanged(self, kept: _Kept) -> bool:
        """Return whether files are as they were; copies of a bucket's may be gone as a whole: arrays stay mapped."""
        for folder, before in kept.states.items():
            state = folder_state(folder)
            if state is None and self._store.copies:
                continue
            if state is None or state != before:
                return False
        return True

    def _load(self, ref: ArtifactRef) -> _Kept:
        try:
            folder = self._store.fetch(ref.folder, ref.fingerprint)
            try:
                return _read(folder, ref)
            except (DamagedArtifact, OSError):
                if not self._store.copies:
                    raise
                return _read(self._store.fetch(ref.folder, ref.fingerprint, anew=True), ref)
        except (OSError, KeyError, ValueError) as problem:  # of which DamagedArtifact is one
            damage = _damage(problem)
            with self._lock:
                before = self._damaged.get(ref)
                self._damaged[ref] = damage
            if before is None or before.unreachable != damage.unreachable:
                message = "artifact unreachable" if damage.unreachable else "artifact damaged"
                log.error(message, extra={"folder": ref.folder, "reason": damage.reason})
            raise damage.as_problem(self._store.root / ref.folder) from None


def _read(folder: Path, ref: ArtifactRef) -> _Kept:
    states = {folder: folder_state(folder)}  # before reading: what is changed meanwhile is seen next time
    network = network_of(folder)
    if network is not None:
        shared = network_folder(folder, network)
        states[shared] = folder_state(shared)
    model, about = load_model(folder, fingerprint=ref.fingerprint)
    return _Kept(LoadedModel(ref.version, model, str(about["trained_from"])), states)


def _damage(problem: Exception) -> Damage:
    unreachable = isinstance(problem, StoreUnreachable)
    if isinstance(problem, DamagedArtifact):
        reason = problem.reason
    else:
        reason = str(problem) if unreachable else type(problem).__name__
    return Damage(reason, time.monotonic() + (UNREACHABLE_SECONDS if unreachable else RETRY_SECONDS), unreachable)


LoadedModelsDep = Annotated[LoadedModels, Depends(from_state("loaded_models"))]
