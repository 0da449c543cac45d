"""Where the artifacts of trained models lie, whatever they lie on."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from app.links.tables import folder_name
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.network_models import FINGERPRINT, NETWORKS

# As place_of gives it: neither absolute nor hidden, one folder deep.
PLACE = re.compile(r"(?![./])(%2E)?[A-Za-z0-9._:-]{0,64}/[1-9][0-9]{0,9}")


class StoreAway(OSError):
    """The model store does not answer, or not to us, and why; nothing is known about what it holds."""


class ArtifactAway(DamagedArtifact):
    """An artifact that cannot be had now, because its store is unreachable; it may be sound."""


class ModelStore(ABC):
    """The artifacts of trained models, each at ``<link>/<version>``, and of their networks, in ``.networks``.

    Models are mapped from a folder of this machine: the store itself, or copies of what the store holds.

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
        if not PLACE.fullmatch(place):
            raise ValueError(f"place={place!r} is refused; it must be a link's folder and a version")
        return self.root / place

    def network(self, fingerprint: str) -> Path:
        """Return the folder of a network's artifact."""
        if not FINGERPRINT.fullmatch(fingerprint):
            raise ValueError(f"fingerprint={fingerprint!r} is refused; it must be a SHA-256 in hexadecimal")
        return self.root / NETWORKS / fingerprint

    def fetch(self, place: str, fingerprint: str, *, anew: bool = False) -> Path:
        """See to it that an artifact and its network lie on this machine, and give its folder.

        Parameters
        ----------
        place : str
        fingerprint : str
            What the artifact must be.
        anew : bool, default=False
            The copy here was found damaged: make another.

        Raises
        ------
        DamagedArtifact
            What the store holds is not sound.
        StoreAway
            There is no copy here, and the store does not answer.
        """
        return self.path(place)

    def fetch_many(self, wanted: Iterable[tuple[str, str]]) -> None:
        """See to it that artifacts, by place and fingerprint, lie on this machine, as far as that can be done now."""
        return

    @abstractmethod
    def add(self, source: Path, place: str, fingerprint: str) -> None:
        """Copy an artifact in, whole or not at all; what is left of an earlier one at its place is replaced.

        The network that it refers to comes along, unless it is there already.
        """

    @abstractmethod
    def require_sound(self, place: str, fingerprint: str) -> None:
        """Refuse an artifact that could not be served, by ``DamagedArtifact`` or an ``OSError``."""

    @abstractmethod
    def size(self, place: str) -> int:
        """Return the bytes of an artifact's files; 0 where there is none."""

    @abstractmethod
    def remove(self, place: str) -> None:
        """Remove an artifact; none there is fine. Never raises: what stays behind is swept."""

    @abstractmethod
    def places(self) -> list[str]:
        """List the places that are taken."""

    @abstractmethod
    def holds_artifact(self, place: str) -> bool:
        """Return whether a place holds an artifact, or what is left of one, and nothing else."""

    @abstractmethod
    def is_old(self, place: str, seconds: float) -> bool:
        """Return whether an artifact was not written to for so long."""

    @abstractmethod
    def networks(self) -> list[str]:
        """List the networks by their fingerprints."""

    @abstractmethod
    def networks_referred_to(self) -> set[str]:
        """Return the networks that artifacts in the store refer to, whatever the database knows of them."""

    @abstractmethod
    def network_is_old(self, fingerprint: str, seconds: float) -> bool:
        """Return whether a network was neither written to nor referred to anew for so long."""

    @abstractmethod
    def remove_network(self, fingerprint: str) -> None:
        """Remove a network's artifact; none there is fine. Never raises."""


def place_of(link_id: str, version: int) -> str:
    """Return the place of a link's version."""
    return f"{folder_name(link_id)}/{version}"
