"""Trained models of links on disk: writing, reading and checking their artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from model.artifacts.artifact import Artifact, DamagedArtifact, read_artifact, write_artifact
from model.artifacts.manifest import INVALID_PARTS
from model.artifacts.network_models import LINK_KIND, check_shape, read_network_model
from model.estimators.fixed_point import FixedPoint
from model.estimators.kernel import Neighborhood
from model.link_model.intervals import Bands
from model.link_model.lag_window import LagWindow
from model.link_model.profile import Profile
from model.link_model.trained_model import TrainedModel
from model.network_model.network import NetworkModel

LinkModel: TypeAlias = TrainedModel | NetworkModel

KIND = "link-model"


def save_model(folder: Path, model: TrainedModel, about: Mapping[str, Any]) -> str:
    """Write a trained model and its metadata ``about``; return the artifact's fingerprint."""
    if model.bands is None:
        raise ValueError("a model without bands cannot be saved; train it first")
    contents: dict[str, Any] = {
        "kind": KIND,
        "algorithm": model.algorithm,
        "lags": list(model.window.lags),
        "n_neighbors": model.neighborhood.n_neighbors,
        "bandwidth": model.neighborhood.bandwidth,
        "center": model.center,
        "scale": model.scale,
        "rank": model.rank,
        "level": model.bands.level,
        "about": dict(about),
    }
    arrays: dict[str, NDArray[Any]] = {
        "components": model.components,
        "memory": model.memory.steps,
        "memory_unit": model.memory.unit,
        "continuations": model.continuations.steps,
        "continuations_unit": model.continuations.unit,
        "positions": model.positions,
        "level_shares": model.level_shares,
        "profile": model.profile.expected_counts,
        "band_edges": model.bands.edges,
        "band_below": model.bands.below,
        "band_above": model.bands.above,
    }
    return write_artifact(folder, contents, arrays)


def load_model(folder: Path, *, fingerprint: str | None = None) -> tuple[LinkModel, dict[str, Any]]:
    """Read a trained model, its arrays mapped into memory, and its metadata."""
    artifact = read_artifact(folder, fingerprint=fingerprint)
    contents = artifact.manifest["contents"]
    if not isinstance(contents, dict) or contents.get("kind") not in (KIND, LINK_KIND):
        raise DamagedArtifact(folder, "it holds something other than a link's model")
    model: LinkModel
    try:
        about = dict(contents["about"])
        if contents["kind"] == LINK_KIND:
            return read_network_model(artifact, folder), about
        model = _build_model(artifact, contents)
        _check_model(model)
    except DamagedArtifact:  # of its network; a ValueError, which INVALID_PARTS has too
        raise
    except KeyError as missing:
        raise DamagedArtifact(folder, f"{missing} is missing from it") from None
    except INVALID_PARTS as problem:
        raise DamagedArtifact(folder, f"its parts do not make a model: {problem}") from None
    return model, about


def _check_model(model: TrainedModel) -> None:
    """Raise ValueError for numbers and shapes that no trained model has."""
    n, horizons = len(model.positions), len(model.level_shares)
    bands = model.bands
    assert bands is not None
    check_shape("components", model.components.shape, (model.rank, len(model.window)))
    check_shape("memory", model.memory.steps.shape, (n, model.rank))
    check_shape("continuations", model.continuations.steps.shape, (n, horizons))
    check_shape("bands", bands.below.shape, bands.above.shape)
    check_shape("band_edges", bands.edges.shape, (horizons, bands.below.shape[1] - 1))
    numbers = (model.center, model.scale, model.neighborhood.bandwidth, bands.level)
    if not all(isfinite(value) for value in numbers) or min(model.scale, model.neighborhood.bandwidth) <= 0.0:
        raise ValueError("center, scale, bandwidth and level must be finite, scale and bandwidth above 0")
    if not (isinstance(model.neighborhood.n_neighbors, int) and model.neighborhood.n_neighbors >= 1 and n >= 1):
        raise ValueError("n_neighbors and the number of remembered windows must be at least 1")


def _build_model(artifact: Artifact, contents: dict[str, Any]) -> TrainedModel:
    arrays = artifact.plain_arrays()
    return TrainedModel(
        algorithm=contents["algorithm"],
        window=LagWindow(contents["lags"]),
        neighborhood=Neighborhood(contents["n_neighbors"], contents["bandwidth"]),
        center=contents["center"],
        scale=contents["scale"],
        components=arrays["components"],
        memory=FixedPoint(arrays["memory"], arrays["memory_unit"]),
        continuations=FixedPoint(arrays["continuations"], arrays["continuations_unit"]),
        positions=arrays["positions"],
        level_shares=arrays["level_shares"],
        profile=Profile(arrays["profile"]),
        bands=Bands(contents["level"], arrays["band_edges"], arrays["band_below"], arrays["band_above"]),
    )
