"""Artifacts in an object store: the truth lies there, and what this machine serves is a copy of it in a folder.

A copy is verified before it takes its place, and taken for what it is by its fingerprint. It is mapped like any
artifact in a folder, so that a model that was loaded asks nothing of the store any more.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.registry.bucket import Bucket, Stored
from app.registry.folder_store import FolderStore
from app.registry.store import PLACE, ModelStore
from model.artifacts.artifact import DamagedArtifact, read_artifact, remove_leftovers
from model.artifacts.folder import ARRAY_SUFFIX, MANIFEST, replaced
from model.artifacts.link_models import load_model
from model.artifacts.manifest import check_entry, parse_manifest
from model.artifacts.network_models import FINGERPRINT, NETWORKS, check_network, network_of

FETCHED_AT_ONCE = 8
TRIM_SECONDS = 600.0
SPARED_SECONDS = 3600.0  # a copy that was asked for of late stays, however many there are
MEGABYTE = 1 << 20

log = logging.getLogger("flowcast.models")


class ObjectStore(ModelStore):
    """Artifacts in a bucket, laid out as in a folder, and copies of those that were needed in a folder of this machine.

    Parameters
    ----------
    bucket : Bucket
    cache : Path
        The folder of the copies, of this store's alone; processes of one machine share it.
    megabytes : int
        How large it may grow. Those asked for longest ago go first.
    """

    copies = True

    def __init__(self, bucket: Bucket, cache: Path, megabytes: int) -> None:
        super().__init__(cache)
        self._bucket, self._cache, self._most = bucket, FolderStore(cache), megabytes * MEGABYTE
        self._one_network = threading.Lock()
        self._trim_at = 0.0

    def fetch(self, place: str, fingerprint: str, *, anew: bool = False) -> Path:
        """See to it that an artifact and its network lie on this machine, and give its folder."""
        folder = self.path(place)
        if anew or not _is(folder, fingerprint):
            self._download(place, folder, fingerprint)
        network = network_of(folder)
        if network is not None:
            with self._one_network:  # links that are fetched at once mostly share one
                self._fetch_network(folder, network, anew)
        _touch(folder)
        return folder

    def fetch_many(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Fetch artifacts side by side; what fails is found out when it is asked for by itself."""

        def fetch(one: tuple[str, str]) -> None:
            with suppress(ValueError, OSError):  # DamagedArtifact is one of the first
                self.fetch(*one)

        with ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="fetch") as pool:
            list(pool.map(fetch, wanted))

    def add(self, source: Path, place: str, fingerprint: str) -> None:
        """Copy an artifact in: its network first, then its arrays, and last its manifest, without which it is none."""
        folder = self.path(place)
        new = not folder.exists()
        self._cache.add(source, place, fingerprint)  # checked here, and what is sent
        try:
            network = network_of(folder)
            if network is not None:
                self._add_network(network)
            self._upload(folder, place)
        except OSError:
            if new:  # otherwise it was to be mended, and the copy here may be the only sound one
                self.remove(place)
            raise

    def require_sound(self, place: str, fingerprint: str) -> None:
        """Refuse an artifact that could not be served, here or by a machine that has no copy of it yet."""
        folder = self.fetch(place, fingerprint)
        try:
            load_model(folder, fingerprint=fingerprint)
        except (DamagedArtifact, FileNotFoundError):
            load_model(self.fetch(place, fingerprint, anew=True), fingerprint=fingerprint)
        self._require_stored(folder, place)
        network = network_of(folder)
        if network is not None:
            self._require_stored(self.network(network), f"{NETWORKS}/{network}")

    def size(self, place: str) -> int:
        """Return the bytes of an artifact's objects; 0 where there is none."""
        return sum(one.size for one in self._objects(place).values())

    def remove(self, place: str) -> None:
        """Remove an artifact, and the copy here; what a store that is unreachable keeps is swept later."""
        self._remove(place)
        self._cache.remove(place)

    def places(self) -> list[str]:
        """List the places that are taken."""
        found = {"/".join(name.split("/")[:2]) for name in self._bucket.list() if name.count("/") >= 2}
        return sorted(place for place in found if PLACE.fullmatch(place))

    def holds_artifact(self, place: str) -> bool:
        """Return whether a place holds an artifact, or what is left of one, and nothing else."""
        names = list(self._objects(place))
        return bool(names) and all(
            "/" not in name and (name == MANIFEST or name.endswith(ARRAY_SUFFIX)) for name in names
        )

    def is_old(self, place: str, seconds: float) -> bool:
        """Return whether an artifact was not written to for so long, by the store's clock."""
        return _is_old(self._objects(place), seconds)

    def networks(self) -> list[str]:
        """List the networks by their fingerprints."""
        found = {name.split("/")[1] for name in self._bucket.list(NETWORKS) if name.count("/") == 2}
        return sorted(name for name in found if FINGERPRINT.fullmatch(name))

    def networks_referred_to(self) -> set[str]:
        """Return the networks that artifacts in the store refer to, from all their manifests."""
        found = set()
        for name, raw in self._bucket.read(f"{place}/{MANIFEST}" for place in self.places()).items():
            with suppress(DamagedArtifact):  # what cannot be read cannot be served either
                contents = parse_manifest(Path(name), raw)["contents"]
                found.add(contents.get("network") if isinstance(contents, dict) else None)
        return {network for network in found if isinstance(network, str)}

    def network_is_old(self, fingerprint: str, seconds: float) -> bool:
        """Return whether a network was neither written to nor referred to anew for so long."""
        self.network(fingerprint)  # refuses what is no fingerprint
        return _is_old(self._objects(f"{NETWORKS}/{fingerprint}"), seconds)

    def remove_network(self, fingerprint: str) -> None:
        """Remove a network's artifact, and the copy here."""
        self._cache.remove_network(fingerprint)
        self._remove(f"{NETWORKS}/{fingerprint}")

    def _objects(self, place: str) -> dict[str, Stored]:
        """Return what lies at a place, by name below it."""
        return {name[len(place) + 1 :]: one for name, one in self._bucket.list(place).items()}

    def _remove(self, place: str) -> None:
        try:
            self._bucket.remove(f"{place}/{name}" for name in sorted(self._objects(place)))
        except OSError as problem:
            log.warning("artifact not removed", extra={"folder": place, "reason": str(problem)})

    def _fetch_network(self, folder: Path, fingerprint: str, anew: bool) -> None:
        target = self.network(fingerprint)
        try:
            if anew:
                check_network(target, fingerprint)
            found = target.is_dir()
        except (DamagedArtifact, OSError):
            found = False
        if not found:
            try:
                self._download(f"{NETWORKS}/{fingerprint}", target, fingerprint)
            except DamagedArtifact as damage:
                raise DamagedArtifact(folder, f"its network {fingerprint[:12]}… is damaged: {damage.reason}") from None
        _touch(target)

    def _download(self, place: str, target: Path, fingerprint: str) -> None:
        """Copy an artifact from the store; it takes its place here once every byte of it was verified."""
        manifest = self._bucket.read([f"{place}/{MANIFEST}"]).get(f"{place}/{MANIFEST}")
        if manifest is None:
            raise DamagedArtifact(target, f"{MANIFEST} is missing from {self._bucket.address}/{place}")
        if (found := hashlib.sha256(manifest).hexdigest()) != fingerprint:
            raise DamagedArtifact(target, f"its fingerprint is {found}; {fingerprint} was expected")
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with replaced(target) as new:
            (new / MANIFEST).write_bytes(manifest)
            self._bucket.get((f"{place}/{name}" for name in _arrays(target, manifest)), new)
            try:
                read_artifact(new, fingerprint=fingerprint)
            except DamagedArtifact as damage:
                raise DamagedArtifact(target, damage.reason) from None
        self._trim()

    def _upload(self, folder: Path, place: str) -> None:
        names = _arrays(folder, (folder / MANIFEST).read_bytes())
        there = self._objects(place)
        self._bucket.remove([f"{place}/{MANIFEST}"] if MANIFEST in there else [])  # until the new one is whole
        self._bucket.put({f"{place}/{name}": folder / name for name in names})
        self._bucket.put({f"{place}/{MANIFEST}": folder / MANIFEST})
        self._bucket.remove(f"{place}/{name}" for name in sorted(set(there) - {*names, MANIFEST}))

    def _add_network(self, fingerprint: str) -> None:
        folder, place = self.network(fingerprint), f"{NETWORKS}/{fingerprint}"
        try:
            self._require_stored(folder, place)
        except DamagedArtifact:
            self._upload(folder, place)
        else:  # in use again: what is swept was not written to of late
            self._bucket.put({f"{place}/{MANIFEST}": folder / MANIFEST})

    def _require_stored(self, folder: Path, place: str) -> None:
        """Refuse what the store does not hold as the copy here says it must, as far as sizes and the manifest tell."""
        manifest = (folder / MANIFEST).read_bytes()
        there = self._objects(place)
        for name in (MANIFEST, *_arrays(folder, manifest)):
            size, stored = (folder / name).stat().st_size, there.get(name)
            if stored is None:
                raise DamagedArtifact(folder, f"{name} is missing from {self._bucket.address}/{place}")
            if stored.size != size:
                raise DamagedArtifact(folder, f"{name} has {stored.size} bytes in the store; {size} were written")
        if self._bucket.read([f"{place}/{MANIFEST}"]).get(f"{place}/{MANIFEST}") != manifest:
            raise DamagedArtifact(folder, f"{MANIFEST} in the store is another's")

    def _trim(self) -> None:
        """Delete copies while there are too many; mapped files stay readable for those who have them."""
        if time.monotonic() < self._trim_at:
            return
        self._trim_at = time.monotonic() + TRIM_SECONDS
        folders = [self.path(place) for place in self._cache.places()]
        folders += [self.network(network) for network in self._cache.networks()]
        found = []
        for folder in folders:
            with suppress(OSError):  # another process was faster
                size = sum(file.stat().st_size for file in folder.iterdir())
                found.append((folder.stat().st_mtime, size, folder))
        total, now = sum(size for _, size, _ in found), time.time()
        for asked_for, size, folder in sorted(found):
            if total <= self._most or asked_for > now - SPARED_SECONDS:
                break
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def _is(folder: Path, fingerprint: str) -> bool:
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest() == fingerprint
    except (FileNotFoundError, NotADirectoryError):
        return False


def _arrays(folder: Path, manifest: bytes) -> list[str]:
    """Return the files that a manifest names; a name that leads elsewhere is refused."""
    entries = parse_manifest(folder, manifest)["arrays"]
    for name, entry in entries.items():
        check_entry(folder, name, entry)
    return [entry["file"] for entry in entries.values()]


def _touch(folder: Path) -> None:
    """Note that a copy was asked for, where the last note is no minute old; readers take a touch for a change."""
    with suppress(OSError):
        if folder.stat().st_mtime < time.time() - 60.0:
            os.utime(folder)


def _is_old(objects: dict[str, Stored], seconds: float) -> bool:
    before = datetime.now(UTC) - timedelta(seconds=seconds)
    return all(one.written < before for one in objects.values())
