"""Artifacts on disk: the folder below which every version on the shelf has its own."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from app.links.folders import folder_name
from model.artifact import read_artifact, remove_leftovers
from model.artifact_folder import MANIFEST, check_replaceable, replaced, sync
from model.stored_model import load_model

# As place_of gives it: neither absolute nor hidden, one folder deep.
PLACE = re.compile(r"(?![./])(%2E)?[A-Za-z0-9._:-]{0,64}/[1-9][0-9]{0,9}")
COPIED_AT_ONCE = 1 << 20


class ModelStore:
    """The artifacts of trained models, each at ``<link>/<version>``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def root(self) -> Path:
        """The folder that holds all of it."""
        return self._root

    def path(self, place: str) -> Path:
        """Give the folder of an artifact by its place; one that would lead out of the store is refused."""
        if not PLACE.fullmatch(place):
            raise ValueError(f"place={place!r} is refused; it must be a link's folder and a version")
        return self._root / place

    def add(self, source: Path, place: str, fingerprint: str) -> None:
        """Copy an artifact in, whole or not at all; what is left of an earlier one at its place is replaced."""
        target = self.path(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        artifact = read_artifact(source, fingerprint=fingerprint)
        files = [MANIFEST, *(entry["file"] for entry in artifact.manifest["arrays"].values())]
        with replaced(target) as new:
            for name in files:
                _copy(source / name, new / name)
            load_model(new, fingerprint=fingerprint)  # the copy is what will be served
        sync(self._root)

    def size(self, place: str) -> int:
        """Give the bytes of an artifact's files; 0 where there is none."""
        folder = self.path(place)
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) if folder.is_dir() else 0

    def places(self) -> list[str]:
        """List the places that are taken."""
        if not self._root.is_dir():
            return []
        links = [folder for folder in self._root.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
        found = [f"{folder.name}/{inner.name}" for folder in links for inner in folder.iterdir()]
        return [place for place in found if PLACE.fullmatch(place)]

    def holds_artifact(self, place: str) -> bool:
        """Tell whether a place holds an artifact, or what is left of one, and nothing else."""
        try:
            check_replaceable(self.path(place))
        except OSError:
            return False
        return self.path(place).is_dir()

    def remove(self, place: str) -> None:
        """Remove an artifact, and its link's folder with the last one; none there is fine."""
        target = self.path(place)
        shutil.rmtree(target, ignore_errors=True)
        try:
            target.parent.rmdir()
        except OSError:  # there are others
            return


def place_of(link_id: str, version: int) -> str:
    """Give the place of a link's version."""
    return f"{folder_name(link_id)}/{version}"


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy, COPIED_AT_ONCE)
        copy.flush()
        os.fsync(copy.fileno())
