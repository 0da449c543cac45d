"""Trained models as responses show them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.links.queries import LinkInfo
from app.registry.activate import version_or_404
from app.registry.ensembles import AGGREGATION
from app.registry.loaded_models import LoadedModels
from app.registry.queries import ArtifactRef, read_versions, serving_versions
from app.registry.schemas import ContextWeight, LagWeight, ModelList, ModelVersionDetail, ModelVersionOut
from app.registry.tables import ModelVersion
from model.artifacts.artifact import DamagedArtifact
from model.link_model.trained_model import TrainedModel
from model.network_model.network import Network, NetworkModel

DECIMALS = 6
COLUMNS = ("version", "state", "algorithm", "trained_from", "trained_to", "rank", "size_bytes")
TIMES = ("created_at", "activated_at", "retired_at")
FINDINGS = ("mu", "n_iter", "gaps", "suspect", "verdicts", "data_fingerprint", "network", "chosen")


def list_models(session: Session, models: LoadedModels, link: LinkInfo, cursor: str | None, most: int) -> ModelList:
    """Return a page of a link's trained models, the newest first."""
    found = read_versions(session, link.link_key, int(cursor) if cursor else None, most + 1)
    damaged, serving = models.damaged(), serving_versions(session, link)
    shown = [
        ModelVersionOut(
            **_fields(row),
            serving=row.version in serving,
            damaged=damaged.get((link.link_key, row.version), row.damaged),
        )
        for row in found[:most]
    ]
    cursor = str(shown[-1].version) if len(found) > most else None
    return ModelList(link_id=link.link_id, choice=link.choice, models=shown, next_cursor=cursor)


def show_version(session: Session, models: LoadedModels, link: LinkInfo, version: int) -> ModelVersionDetail:
    """Return one version with its verdicts, and the weights that its artifact holds."""
    row = version_or_404(session, link, version)
    lags, columns, damage = None, None, None
    try:
        model = models.get(ArtifactRef(row.link_key, row.version, row.folder, row.fingerprint, row.algorithm)).model
        if isinstance(model, NetworkModel):
            lags, columns = [], context_weights(model.network)
        else:
            lags = lag_weights(model)
    except DamagedArtifact as damaged:
        damage = damaged.reason
    return ModelVersionDetail(
        **_fields(row),
        serving=version in serving_versions(session, link),
        **{name: row.about.get(name) for name in FINDINGS},
        fingerprint=row.fingerprint,
        damaged=damage,
        lag_weights=lags,
        context_weights=columns,
    )


def lag_weights(model: TrainedModel) -> list[LagWeight]:
    """Return the weight of each lag: its share of the trace of the metric, A.T @ A."""
    shares = _shares_of_the_trace(model.components)
    ranked = sorted(zip(model.window.lags, shares, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return [LagWeight(lag=int(lag), weight=round(share, DECIMALS)) for lag, share in ranked]


def context_weights(network: Network) -> list[ContextWeight]:
    """Return the weight of each column of context: its share of the trace of the metric."""
    shares = _shares_of_the_trace(network.components)
    ranked = sorted(zip(network.parts.columns, shares, strict=True), key=lambda pair: -pair[1])
    return [ContextWeight(part=part, column=column, weight=round(share, DECIMALS)) for (part, column), share in ranked]


def _shares_of_the_trace(components: NDArray[np.float64]) -> list[float]:
    diagonal = np.sum(np.square(np.asarray(components, dtype=np.float64)), axis=0)
    total = float(diagonal.sum())
    shares: list[float] = (diagonal / total if total > 0.0 else np.zeros_like(diagonal)).tolist()
    return shares


def _fields(row: ModelVersion) -> dict[str, Any]:
    held_out = row.about["held_out"].items()
    return {name: getattr(row, name) for name in (*COLUMNS, *TIMES)} | {
        "parameters": row.about["plan"],
        "held_out": {method: {name: one["value"] for name, one in measures.items()} for method, measures in held_out},
        "decision": row.about.get("decision"),
        "expert": AGGREGATION in row.about,
    }
