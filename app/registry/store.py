"""The store of trained models: artifacts in a folder of this machine, or in a bucket with copies in a folder."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from app.links.tables import folder_name
from app.settings import Settings
from model.artifacts.artifact import DamagedArtifact, read_artifact, remove_leftovers
from model.artifacts.folder import MANIFEST, check_replaceable, replace_folder, sync
from model.artifacts.link_models import load_model
from model.artifacts.network_models import (
    FINGERPRINT,
    NETWORKS,
    check_network,
    load_network,
    network_folder,
    network_of,
)

# As place_of returns it: neither absolute nor hidden, one folder deep.
PLACE = re.compile(r"(?![./])(%2E)?[A-Za-z0-9._:-]{0,64}/[1-9][0-9]{0,9}")
NETWORK_PLACE = re.compile(rf"{re.escape(NETWORKS)}/{FINGERPRINT.pattern}")
COPIED_AT_ONCE = 1 << 20


class StoreUnreachable(OSError):
    """The model store does not answer, or refuses this service; its artifacts may be sound."""


class ArtifactUnreachable(DamagedArtifact):
    """An artifact that cannot be read because its store is unreachable; it may be sound."""


class ModelStore:
    """The artifacts of trained models, each at ``<link>/<version>``, and of networks, at ``.networks/<fingerprint>``.

    Models are mapped from a folder of this machine. Here that folder is the store itself, of this machine or shared by
    several; in an ``ObjectStore`` it holds copies.

    Attributes
    ----------
    root : Path
        That folder. Retrain runs train below it, too.
    copies : bool
        Whether it holds copies, which may be fetched again.
    """

    copies = False

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, place: str) -> Path:
        """Return the folder of an artifact by its place; one that would lead out of the store is refused."""
        if not (PLACE.fullmatch(place) or NETWORK_PLACE.fullmatch(place)):
            raise ValueError(f"place={place!r} is refused; it must be a link's folder and a version, or a network's")
        return self.root / place

    def fetch(self, place: str, fingerprint: str, *, anew: bool = False) -> Path:
        """Ensure that an artifact and its network lie on this machine, and return its folder.

        Parameters
        ----------
        place : str
        fingerprint : str
            What the artifact must be.
        anew : bool, default=False
            Replace the copy on this machine, which was found damaged.

        Raises
        ------
        DamagedArtifact
            What the store holds is not sound.
        StoreUnreachable
            This machine has no copy, and the store does not answer.
        """
        return self.path(place)

    def fetch_many(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Fetch artifacts by place and fingerprint; failures are reported when the artifacts are fetched one by one."""

    def add(self, source: Path, place: str, fingerprint: str) -> None:
        """Copy an artifact in, whole or not at all; what is left of an earlier one at its place is replaced.

        The network that it refers to is copied, too, unless it is there already.
        """
        target = self.path(place)
        network = network_of(source)
        if network is not None:
            self.add_network(network_folder(source, network), network)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with replace_folder(target) as new:
            _copy_artifact(source, new, fingerprint)
            if network is None:
                load_model(new, fingerprint=fingerprint)  # the copy is what will be served
            else:  # from a folder that is being written its network is not found
                read_artifact(new, fingerprint=fingerprint)
        sync(self.root)

    def add_network(self, source: Path, fingerprint: str) -> None:
        """Copy a network in, whole or not at all; a sound one that is there already stays."""
        target = self.path(f"{NETWORKS}/{fingerprint}")
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        try:
            check_network(target, fingerprint)
            os.utime(target)  # because an unused network is swept an hour after its last write
        except (DamagedArtifact, OSError):
            if source.absolute() == target.absolute():
                raise
        else:
            return
        with replace_folder(target) as new:
            _copy_artifact(source, new, fingerprint)
            load_network(new, fingerprint=fingerprint)
        sync(self.root)

    def require_sound(self, place: str, fingerprint: str) -> None:
        """Raise ``DamagedArtifact`` or an ``OSError`` for an artifact that could not be served."""
        load_model(self.path(place), fingerprint=fingerprint)

    def size(self, place: str) -> int:
        """Return the bytes of an artifact's files; 0 where there is none."""
        folder = self.path(place)
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) if folder.is_dir() else 0

    def remove(self, place: str) -> None:
        """Remove an artifact, and the folder above it with the last one. Never raises: what is left is swept later."""
        target = self.path(place)
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):  # there are others
            target.parent.rmdir()

    def places(self) -> list[str]:
        """List the places of artifacts of links."""
        links = [folder for folder in self.root.iterdir() if folder.is_dir()] if self.root.is_dir() else []
        return [place for link in links if not link.name.startswith(".") for place in self._below(link, PLACE)]

    def networks(self) -> list[str]:
        """List the places of artifacts of networks."""
        networks = self.root / NETWORKS
        return sorted(self._below(networks, NETWORK_PLACE)) if networks.is_dir() else []

    def networks_referred_to(self) -> set[str]:
        """Return the fingerprints of networks that artifacts in the store refer to, also artifacts without a row."""
        found = set()
        for place in self.places():
            with suppress(DamagedArtifact, OSError):  # what cannot be read cannot be served either
                found.add(network_of(self.path(place)))
        return {network for network in found if network is not None}

    def holds_artifact(self, place: str) -> bool:
        """Return whether a place holds an artifact, or what is left of one, and nothing else."""
        try:
            check_replaceable(self.path(place))
        except OSError:
            return False
        return self.path(place).is_dir()

    def is_old(self, place: str, seconds: float) -> bool:
        """Return whether an artifact was neither written to nor referred to anew for so long."""
        return is_old(self.path(place), seconds)

    def _below(self, folder: Path, pattern: re.Pattern[str]) -> list[str]:
        places = [f"{folder.name}/{inner.name}" for inner in folder.iterdir()]
        return [place for place in places if pattern.fullmatch(place)]


def open_store(settings: Settings) -> ModelStore:
    """Return the model store that the settings name."""
    if isinstance(settings.model_store, Path):
        return ModelStore(settings.model_store)
    from app.registry.object_store import open_object_store  # which builds on this module

    return open_object_store(settings.model_store, settings.model_cache, settings.model_cache_megabytes)


def place_of(link_id: str, version: int) -> str:
    """Return the place of a link's version."""
    return f"{folder_name(link_id)}/{version}"


def is_old(folder: Path, seconds: float) -> bool:
    """Return whether neither a folder nor anything in it was written to for so long."""
    latest = 0.0
    for path in (folder, *folder.rglob("*")):
        try:
            latest = max(latest, path.lstat().st_mtime)
        except FileNotFoundError:  # a process is at work there
            return False
    return latest < time.time() - seconds


def _copy_artifact(source: Path, target: Path, fingerprint: str) -> None:
    artifact = read_artifact(source, fingerprint=fingerprint)
    for name in (MANIFEST, *(entry["file"] for entry in artifact.manifest["arrays"].values())):
        copy_file(source / name, target / name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file and flush it to disk."""
    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy, COPIED_AT_ONCE)
        copy.flush()
        os.fsync(copy.fileno())
