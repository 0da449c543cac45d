"""Artifacts in a bucket, and copies of those that were needed in a folder of this machine.

A copy is identified by its fingerprint and verified before it is used. It is mapped like any artifact in a folder, so
that a loaded model does not need the bucket.
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
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from app.registry.bucket import Bucket, StoredObject
from app.registry.store import NETWORK_PLACE, PLACE, ModelStore
from model.artifacts.artifact import DamagedArtifact, read_artifact, remove_leftovers
from model.artifacts.folder import ARRAY_SUFFIX, MANIFEST, replace_folder
from model.artifacts.link_models import load_model
from model.artifacts.manifest import check_entry, parse_manifest
from model.artifacts.network_models import NETWORKS, check_network, network_of

FETCHED_AT_ONCE = 8
TRIM_SECONDS = 600.0
SPARED_SECONDS = 3600.0  # a copy that was used in this time stays, however many there are
MEGABYTE = 1 << 20

log = logging.getLogger("flowcast.models")


class ObjectStore(ModelStore):
    """Artifacts in a bucket, laid out as in a folder, with copies in a folder of this machine.

    Parameters
    ----------
    bucket : Bucket
    cache : Path
        The folder of the copies, of this store's alone; processes of one machine share it.
    megabytes : int
        How large it may grow. Those used longest ago are removed first.
    """

    copies = True

    def __init__(self, bucket: Bucket, cache: Path, megabytes: int) -> None:
        super().__init__(cache)
        self._bucket, self._most_bytes = bucket, megabytes * MEGABYTE
        self._one_network = threading.Lock()
        self._trim_at = 0.0

    def fetch(self, place: str, fingerprint: str, *, anew: bool = False) -> Path:
        """Ensure that copies of an artifact and its network lie on this machine, and return its folder."""
        folder = self.path(place)
        if anew or not _has_fingerprint(folder, fingerprint):
            self._download(place, fingerprint)
        network = network_of(folder)
        if network is not None:
            with self._one_network:  # links that are fetched at once mostly share one
                self._fetch_network(folder, network, anew)
        _touch(folder)
        return folder

    def fetch_many(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Fetch artifacts side by side; what fails is reported when it is fetched by itself."""

        def fetch(one: tuple[str, str]) -> None:
            with suppress(ValueError, OSError):  # DamagedArtifact is one of the first
                self.fetch(*one)

        with ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="fetch") as pool:
            list(pool.map(fetch, wanted))

    def add(self, source: Path, place: str, fingerprint: str) -> None:
        """Store an artifact: its network first, then its arrays, and last its manifest, which makes it complete."""
        folder = self.path(place)
        new = not folder.exists()
        super().add(source, place, fingerprint)  # the copy is checked, and it is what is uploaded
        try:
            network = network_of(folder)
            if network is not None:
                self._upload_network(f"{NETWORKS}/{network}")
            self._upload(place)
        except OSError:
            if new:  # otherwise it was to be repaired, and the copy may be the only sound one
                self.remove(place)
            raise

    def require_sound(self, place: str, fingerprint: str) -> None:
        """Raise for an artifact that could not be served, by this machine or by one that has no copy of it yet."""
        folder = self.fetch(place, fingerprint)
        try:
            load_model(folder, fingerprint=fingerprint)
        except (DamagedArtifact, FileNotFoundError):
            load_model(self.fetch(place, fingerprint, anew=True), fingerprint=fingerprint)
        self._require_stored(place)
        network = network_of(folder)
        if network is not None:
            self._require_stored(f"{NETWORKS}/{network}")

    def size(self, place: str) -> int:
        """Return the bytes of an artifact's objects; 0 where there is none."""
        return sum(one.size for one in self._objects(place).values())

    def remove(self, place: str) -> None:
        """Remove an artifact and its copy; what an unreachable store keeps is swept later."""
        super().remove(place)
        try:
            self._bucket.remove(f"{place}/{name}" for name in sorted(self._objects(place)))
        except OSError as problem:
            log.warning("artifact not removed", extra={"folder": place, "reason": str(problem)})

    def places(self) -> list[str]:
        """List the places of artifacts of links."""
        found = {"/".join(name.split("/")[:2]) for name in self._bucket.list() if name.count("/") >= 2}
        return sorted(place for place in found if PLACE.fullmatch(place))

    def networks(self) -> list[str]:
        """List the places of artifacts of networks."""
        found = {name.rpartition("/")[0] for name in self._bucket.list(NETWORKS)}
        return sorted(place for place in found if NETWORK_PLACE.fullmatch(place))

    def networks_referred_to(self) -> set[str]:
        """Return the fingerprints of networks that artifacts in the store refer to, from all their manifests."""
        found = set()
        for name, raw in self._bucket.read(f"{place}/{MANIFEST}" for place in self.places()).items():
            with suppress(DamagedArtifact):  # what cannot be read cannot be served either
                contents = parse_manifest(Path(name), raw)["contents"]
                found.add(contents.get("network") if isinstance(contents, dict) else None)
        return {network for network in found if isinstance(network, str)}

    def holds_artifact(self, place: str) -> bool:
        """Return whether a place holds an artifact, or what is left of one, and nothing else."""
        names = list(self._objects(place))
        return bool(names) and all(
            "/" not in name and (name == MANIFEST or name.endswith(ARRAY_SUFFIX)) for name in names
        )

    def is_old(self, place: str, seconds: float) -> bool:
        """Return whether an artifact was neither written to nor referred to anew for so long, by the store's clock."""
        before = datetime.now(UTC) - timedelta(seconds=seconds)
        return all(one.written < before for one in self._objects(place).values())

    def _objects(self, place: str) -> dict[str, StoredObject]:
        """Return the objects at a place, by name below it."""
        return {name[len(place) + 1 :]: one for name, one in self._bucket.list(place).items()}

    def _fetch_network(self, folder: Path, fingerprint: str, anew: bool) -> None:
        place = f"{NETWORKS}/{fingerprint}"
        target = self.path(place)
        try:
            if anew:
                check_network(target, fingerprint)
            found = target.is_dir()
        except (DamagedArtifact, OSError):
            found = False
        if not found:
            try:
                self._download(place, fingerprint)
            except DamagedArtifact as damage:
                raise DamagedArtifact(folder, f"its network {fingerprint[:12]}… is damaged: {damage.reason}") from None
        _touch(target)

    def _download(self, place: str, fingerprint: str) -> None:
        """Copy an artifact from the bucket; the copy takes its place once every byte of it was verified."""
        target = self.path(place)
        manifest = self._bucket.read([f"{place}/{MANIFEST}"]).get(f"{place}/{MANIFEST}")
        if manifest is None:
            raise DamagedArtifact(target, f"{MANIFEST} is missing from {self._bucket.address}/{place}")
        if (found := hashlib.sha256(manifest).hexdigest()) != fingerprint:
            raise DamagedArtifact(target, f"its fingerprint is {found}; {fingerprint} was expected")
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with replace_folder(target) as new:
            (new / MANIFEST).write_bytes(manifest)
            self._bucket.get((f"{place}/{name}" for name in _arrays(target, manifest)), new)
            try:
                read_artifact(new, fingerprint=fingerprint)
            except DamagedArtifact as damage:
                raise DamagedArtifact(target, damage.reason) from None
        self._trim()

    def _upload(self, place: str) -> None:
        folder = self.path(place)
        names = _arrays(folder, (folder / MANIFEST).read_bytes())
        old = self._objects(place)
        self._bucket.remove([f"{place}/{MANIFEST}"] if MANIFEST in old else [])  # until the new one is whole
        self._bucket.put({f"{place}/{name}": folder / name for name in names})
        self._bucket.put({f"{place}/{MANIFEST}": folder / MANIFEST})
        self._bucket.remove(f"{place}/{name}" for name in sorted(set(old) - {*names, MANIFEST}))

    def _upload_network(self, place: str) -> None:
        try:
            self._require_stored(place)
        except DamagedArtifact:
            self._upload(place)
        else:  # written again, because an unused network is swept an hour after its last write
            self._bucket.put({f"{place}/{MANIFEST}": self.path(place) / MANIFEST})

    def _require_stored(self, place: str) -> None:
        """Raise ``DamagedArtifact`` if the bucket differs from the copy in the manifest or the sizes of objects."""
        folder = self.path(place)
        manifest = (folder / MANIFEST).read_bytes()
        objects = self._objects(place)
        for name in (MANIFEST, *_arrays(folder, manifest)):
            size, stored = (folder / name).stat().st_size, objects.get(name)
            if stored is None:
                raise DamagedArtifact(folder, f"{name} is missing from {self._bucket.address}/{place}")
            if stored.size != size:
                raise DamagedArtifact(folder, f"{name} has {stored.size} bytes in the store; {size} were written")
        if self._bucket.read([f"{place}/{MANIFEST}"]).get(f"{place}/{MANIFEST}") != manifest:
            raise DamagedArtifact(folder, f"{MANIFEST} in the store was written by another process")

    def _trim(self) -> None:
        """Delete copies while there are too many; mapped files stay readable for processes that have them."""
        if time.monotonic() < self._trim_at:
            return
        self._trim_at = time.monotonic() + TRIM_SECONDS
        found = []
        for place in super().places() + super().networks():
            folder = self.path(place)
            with suppress(OSError):  # another process was faster
                size = sum(file.stat().st_size for file in folder.iterdir())
                found.append((folder.stat().st_mtime, size, folder))
        total, now = sum(size for _, size, _ in found), time.time()
        for used, size, folder in sorted(found):
            if total <= self._most_bytes or used > now - SPARED_SECONDS:
                break
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


@lru_cache
def open_object_store(address: str, cache: Path, megabytes: int) -> ObjectStore:
    """Open a store once in a process, so that an unreachable one is known as such by all parts of the process."""
    # A folder for every store: two that share a cache must not take each other's places.
    return ObjectStore(Bucket(address), cache / quote(address.removeprefix("s3://"), safe=""), megabytes)


def _has_fingerprint(folder: Path, fingerprint: str) -> bool:
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest() == fingerprint
    except (FileNotFoundError, NotADirectoryError):
        return False


def _arrays(folder: Path, manifest: bytes) -> list[str]:
    """Return the files that a manifest names; raise ``DamagedArtifact`` for a path out of the folder."""
    entries = parse_manifest(folder, manifest)["arrays"]
    for name, entry in entries.items():
        check_entry(folder, name, entry)
    return [entry["file"] for entry in entries.values()]


def _touch(folder: Path) -> None:
    """Set a copy's time to now, once a minute at most; readers take a newer folder for a change."""
    with suppress(OSError):
        if folder.stat().st_mtime < time.time() - 60.0:
            os.utime(folder)
