"""Network models on disk: one artifact for the network, and a small one for each link.

A link's artifact refers to its network's by fingerprint. The network's artifact is in ``.networks``,
beside the folder of the link's artifact or one level above, because training folders and the model
store differ in this.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from model.artifacts.artifact import Artifact, DamagedArtifact, read_artifact, write_artifact
from model.artifacts.folder import MANIFEST
from model.artifacts.manifest import INVALID_PARTS, parse_manifest
from model.estimators.fixed_point import FixedPoint
from model.link_model.intervals import Bands
from model.network_model.context import ContextParts
from model.network_model.local_memory import LocalMemory
from model.network_model.network import ALGORITHM, Base, Network, NetworkModel
from model.network_model.profile import NetworkProfile

NETWORK_KIND, LINK_KIND = "network", "network-link-model"
NETWORKS = ".networks"
FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def save_network(folder: Path, network: Network, about: Mapping[str, Any]) -> str:
    """Write a network's artifact to ``.networks`` in a folder, named by its fingerprint, which is returned."""
    home = folder / NETWORKS
    home.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {
        "kind": NETWORK_KIND,
        "link_ids": list(network.link_ids),
        "upstream": [list(links) for links in network.upstream],
        "parts": network.parts.names,
        "holidays": network.holidays,
        "n_neighbors": network.memory.n_neighbors,
        "about": dict(about),
    }
    arrays: dict[str, NDArray[Any]] = {
        "junction": network.junction,
        "expected_counts": network.profile.expected_counts,
        "by_day_type": network.profile.by_day_type,
        "base_mean": network.base.mean,
        "base_scale": network.base.scale,
        "base_weights": network.base.weights,
        "base_offset": network.base.offset,
        "components": network.components,
        **_memory_arrays(network.memory),
        "memory_links": network.memory.links,
    }
    new = home / f"new-{secrets.token_hex(4)}"
    fingerprint = write_artifact(new, contents, arrays)
    target = home / fingerprint
    if target.exists():  # the same network
        shutil.rmtree(new)
    else:
        new.rename(target)
    return fingerprint


def save_network_model(folder: Path, model: NetworkModel, network: str, about: Mapping[str, Any]) -> str:
    """Write a link's artifact, which refers to its network by fingerprint; return its fingerprint."""
    if model.bands is None:
        raise ValueError("a model without bands cannot be saved; train it first")
    contents: dict[str, Any] = {
        "kind": LINK_KIND,
        "algorithm": ALGORITHM,
        "network": network,
        "link": model.link,
        "link_id": model.network.link_ids[model.link],
        "rank": model.rank,
        "level": model.bands.level,
        "n_neighbors": model.memory.n_neighbors,
        "about": dict(about),
    }
    arrays: dict[str, NDArray[Any]] = {
        "own": model.own,
        "shares": model.shares,
        **_memory_arrays(model.memory),
        "band_edges": model.bands.edges,
        "band_below": model.bands.below,
        "band_above": model.bands.above,
    }
    return write_artifact(folder, contents, arrays)


def read_network_model(artifact: Artifact, folder: Path) -> NetworkModel:
    """Build a link's model from its artifact and its network's."""
    contents, arrays = artifact.manifest["contents"], artifact.plain_arrays()
    network = find_network(folder, str(contents["network"]))
    link = contents["link"]
    if not (isinstance(link, int) and 0 <= link < len(network.link_ids)):
        raise ValueError(f"link={link!r} is refused; its network has {len(network.link_ids)} links")
    memory = _memory(arrays, contents["n_neighbors"], np.full(len(arrays["memory_slots"]), link, dtype=np.int32))
    bands = Bands(contents["level"], arrays["band_edges"], arrays["band_below"], arrays["band_above"])
    model = NetworkModel(network, link, arrays["own"], memory, arrays["shares"], bands)
    shape, horizons = network.base.weights.shape, network.horizons
    bins = bands.below.shape[-1]
    check_shape("own", model.own.shape, shape)
    check_shape("shares", model.shares.shape, (2,))
    check_shape("memory", memory.points.steps.shape, (len(memory), network.rank))
    check_shape("missed", memory.missed.steps.shape, (len(memory), horizons))
    check_shape("band_below", bands.below.shape, (horizons, bins))
    check_shape("band_above", bands.above.shape, (horizons, bins))
    check_shape("band_edges", bands.edges.shape, (horizons, bins - 1))
    return model


class _CheckedNetwork(NamedTuple):
    """The state of a network's folder when it was last read, and the fault that was found, if any."""

    state: int
    fault: str | None


_networks: WeakValueDictionary[str, Network] = WeakValueDictionary()
_checked: dict[str, _CheckedNetwork] = {}
_lock = threading.Lock()


def find_network(folder: Path, fingerprint: str) -> Network:
    """Return the network that an artifact refers to.

    A process holds one instance of each network while a model uses it. The network is read and
    checked again after a change of its files.
    """
    path = network_folder(folder, fingerprint)
    with _lock:
        network = _networks.get(str(path)) if _is_current(folder, path) else None
        return _read_network(folder, path, fingerprint) if network is None else network


def check_network(folder: Path, fingerprint: str) -> None:
    """Raise DamagedArtifact if the network's artifact in ``folder`` is damaged; read it only after a change."""
    with _lock:
        if not _is_current(folder, folder):
            _read_network(folder, folder, fingerprint)


def folder_state(folder: Path) -> int | None:
    """Return a hash of names, inodes, sizes and times of the files in a folder; None if it is missing."""
    try:
        with os.scandir(folder) as entries:
            files = sorted((entry.name, entry.stat()) for entry in entries)
    except OSError:
        return None
    return hash(tuple((name, file.st_ino, file.st_size, file.st_mtime_ns) for name, file in files))


def network_of(folder: Path) -> str | None:
    """Return the fingerprint of the network that a link's artifact refers to, or None."""
    contents = parse_manifest(folder, (folder / MANIFEST).read_bytes())["contents"]
    named = contents.get("kind") == LINK_KIND if isinstance(contents, dict) else False
    return str(contents.get("network")) if named else None


def _is_current(folder: Path, path: Path) -> bool:
    checked = _checked.get(str(path))
    if checked is None or checked.state != folder_state(path):
        return False
    if checked.fault is not None:  # not read again, because hundreds of links may refer to it
        raise DamagedArtifact(folder, checked.fault)
    return True


def _read_network(folder: Path, path: Path, fingerprint: str) -> Network:
    state = folder_state(path)  # before reading, so that a change during the read is noticed next time
    try:
        network = load_network(path, fingerprint=fingerprint)
    except DamagedArtifact as damage:
        fault = f"its network {fingerprint[:12]}… is damaged: {damage.reason}"
        if state is not None:
            _checked[str(path)] = _CheckedNetwork(state, fault)
        raise DamagedArtifact(folder, fault) from None
    if state is not None:
        _checked[str(path)] = _CheckedNetwork(state, None)
    _networks[str(path)] = network
    return network


def network_folder(folder: Path, fingerprint: str) -> Path:
    """Return the folder of the network that a link's artifact in ``folder`` refers to."""
    if not FINGERPRINT.fullmatch(fingerprint):
        raise DamagedArtifact(folder, "the fingerprint of its network is malformed")
    above = folder.absolute().parent
    for home in (above, above.parent):
        path = home / NETWORKS / fingerprint
        if path.is_dir():
            return path
    raise DamagedArtifact(folder, f"its network {fingerprint[:12]}… is missing")


def load_network(folder: Path, *, fingerprint: str | None = None) -> Network:
    """Read a network, its arrays mapped into memory."""
    artifact = read_artifact(folder, fingerprint=fingerprint)
    contents = artifact.manifest["contents"]
    if not isinstance(contents, dict) or contents.get("kind") != NETWORK_KIND:
        raise DamagedArtifact(folder, "it holds something other than a network")
    try:
        return _network(artifact.plain_arrays(), contents)
    except KeyError as missing:
        raise DamagedArtifact(folder, f"{missing} is missing from it") from None
    except INVALID_PARTS as problem:
        raise DamagedArtifact(folder, f"its parts do not make a network: {problem}") from None


def _network(arrays: dict[str, NDArray[Any]], contents: dict[str, Any]) -> Network:
    network = Network(
        tuple(str(link_id) for link_id in contents["link_ids"]),
        arrays["junction"],
        tuple(tuple(int(link) for link in links) for links in contents["upstream"]),
        ContextParts.named(contents["parts"]),
        NetworkProfile(arrays["expected_counts"], arrays["by_day_type"]),
        Base(arrays["base_mean"], arrays["base_scale"], arrays["base_weights"], arrays["base_offset"]),
        arrays["components"],
        _memory(arrays, contents["n_neighbors"], arrays["memory_links"]),
        str(contents["holidays"]),
    )
    links, columns = len(network.link_ids), len(network.parts.columns)
    horizons, week = network.horizons, network.profile.expected_counts.shape[1:]
    check_shape("expected_counts", network.profile.expected_counts.shape, (links, 7, *week[1:]))
    check_shape("by_day_type", network.profile.by_day_type.shape, (links, 7, *week[1:]))
    check_shape("junction", network.junction.shape, (links,))
    check_shape("upstream", (len(network.upstream),), (links,))
    for name in ("mean", "scale", "weights"):
        check_shape(f"base_{name}", getattr(network.base, name).shape, (horizons, columns))
    check_shape("base_offset", network.base.offset.shape, (horizons,))
    check_shape("components", network.components.shape, (network.rank, columns))
    memory = network.memory
    check_shape("memory", memory.points.steps.shape, (len(memory), network.rank))
    check_shape("missed", memory.missed.steps.shape, (len(memory), horizons))
    check_shape("memory_links", memory.links.shape, (len(memory),))
    for others in network.upstream:
        if others and not (min(others) >= 0 and max(others) < links):
            raise ValueError(f"upstream names a link that is not one of its {links}")
    return network


def _memory_arrays(memory: LocalMemory) -> dict[str, NDArray[Any]]:
    return {
        "memory": memory.points.steps,
        "memory_unit": memory.points.unit,
        "missed": memory.missed.steps,
        "missed_unit": memory.missed.unit,
        "memory_slots": memory.slots,
    }


def _memory(arrays: dict[str, NDArray[Any]], n_neighbors: int, links: NDArray[np.int32]) -> LocalMemory:
    if not (isinstance(n_neighbors, int) and n_neighbors >= 1):
        raise ValueError(f"n_neighbors={n_neighbors!r} is refused; it must be a whole number of at least 1")
    points = FixedPoint(arrays["memory"], arrays["memory_unit"])
    missed = FixedPoint(arrays["missed"], arrays["missed_unit"])
    return LocalMemory(points, missed, links, arrays["memory_slots"], n_neighbors)


def check_shape(name: str, actual: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise ValueError if an array of an artifact has another shape than expected."""
    if actual != expected:
        raise ValueError(f"{name} has shape {actual}; it must be {expected}")
