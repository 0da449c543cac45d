"""Artifacts in a folder, of this machine or shared by several: every version in the registry has its own below it."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from app.registry.store import PLACE, ModelStore
from model.artifacts.artifact import DamagedArtifact, read_artifact, remove_leftovers
from model.artifacts.folder import MANIFEST, check_replaceable, replaced, sync
from model.artifacts.link_models import load_model
from model.artifacts.network_models import (
    FINGERPRINT,
    NETWORKS,
    check_network,
    load_network,
    network_folder,
    network_of,
)

COPIED_AT_ONCE = 1 << 20


class FolderStore(ModelStore):
    """Artifacts in a folder; models are mapped from where they lie."""

    def add(self, source: Path, place: str, fingerprint: str) -> None:
        """Copy an artifact in, whole or not at all; what is left of an earlier one at its place is replaced.

        The network that it refers to comes along, unless it is there already.
        """
        target = self.path(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        network = network_of(source)
        if network is not None:
            self.add_network(network_folder(source, network), network)
        with replaced(target) as new:
            _copy_artifact(source, new, fingerprint)
            if network is None:
                load_model(new, fingerprint=fingerprint)  # the copy is what will be served
            else:  # from here its network is not found
                read_artifact(new, fingerprint=fingerprint)
        sync(self.root)

    def add_network(self, source: Path, fingerprint: str) -> None:
        """Copy what links share in, whole or not at all; a sound one that is there already stays."""
        target = self.network(fingerprint)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        try:
            check_network(target, fingerprint)
            os.utime(target)  # in use again: what is swept was not written to of late
        except (DamagedArtifact, OSError):
            if source.absolute() == target.absolute():
                raise
        else:
            return
        with replaced(target) as new:
            _copy_artifact(source, new, fingerprint)
            load_network(new, fingerprint=fingerprint)
        sync(self.root)

    def networks(self) -> list[str]:
        """List the networks by their fingerprints."""
        home = self.root / NETWORKS
        names = [folder.name for folder in home.iterdir() if folder.is_dir()] if home.is_dir() else []
        return sorted(name for name in names if FINGERPRINT.fullmatch(name))

    def networks_referred_to(self) -> set[str]:
        """Return the networks that artifacts in the store refer to, whatever the database knows of them."""
        found = set()
        for place in self.places():
            with suppress(DamagedArtifact, OSError):  # what cannot be read cannot be served either
                found.add(network_of(self.path(place)))
        return {network for network in found if network is not None}

    def network_is_old(self, fingerprint: str, seconds: float) -> bool:
        """Return whether a network was neither written to nor referred to anew for so long."""
        return is_old(self.network(fingerprint), seconds)

    def remove_network(self, fingerprint: str) -> None:
        """Remove a network's artifact; none there is fine."""
        shutil.rmtree(self.network(fingerprint), ignore_errors=True)

    def require_sound(self, place: str, fingerprint: str) -> None:
        """Refuse an artifact that could not be served."""
        load_model(self.path(place), fingerprint=fingerprint)

    def size(self, place: str) -> int:
        """Return the bytes of an artifact's files; 0 where there is none."""
        folder = self.path(place)
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) if folder.is_dir() else 0

    def places(self) -> list[str]:
        """List the places that are taken."""
        if not self.root.is_dir():
            return []
        links = [folder for folder in self.root.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
        found = [f"{folder.name}/{inner.name}" for folder in links for inner in folder.iterdir()]
        return [place for place in found if PLACE.fullmatch(place)]

    def holds_artifact(self, place: str) -> bool:
        """Return whether a place holds an artifact, or what is left of one, and nothing else."""
        try:
            check_replaceable(self.path(place))
        except OSError:
            return False
        return self.path(place).is_dir()

    def is_old(self, place: str, seconds: float) -> bool:
        """Return whether an artifact was not written to for so long."""
        return is_old(self.path(place), seconds)

    def remove(self, place: str) -> None:
        """Remove an artifact, and its link's folder with the last one; none there is fine."""
        target = self.path(place)
        shutil.rmtree(target, ignore_errors=True)
        try:
            target.parent.rmdir()
        except OSError:  # there are others
            return


def is_old(folder: Path, seconds: float) -> bool:
    """Return whether neither a folder nor anything in it was written to for so long."""
    latest = 0.0
    for path in (folder, *folder.rglob("*")):
        try:
            latest = max(latest, path.lstat().st_mtime)
        except FileNotFoundError:  # somebody is at work there
            return False
    return latest < time.time() - seconds


def _copy_artifact(source: Path, target: Path, fingerprint: str) -> None:
    artifact = read_artifact(source, fingerprint=fingerprint)
    for name in (MANIFEST, *(entry["file"] for entry in artifact.manifest["arrays"].values())):
        copy_file(source / name, target / name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file and have it on disk before returning."""
    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy, COPIED_AT_ONCE)
        copy.flush()
        os.fsync(copy.fileno())
