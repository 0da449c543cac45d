"""Fresh without refitting: newer counts join the memories of network models, and links without a model get one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.counts.series import LinkSeries
from app.links.tables import folder_name
from app.training.aligned_counts import examined
from app.training.link_training import ActiveModel, LinkOutcome, data_fingerprint, failure, figures_as_json, learnt_from
from app.training.network_stage import NetworkStage
from model.artifacts.link_models import load_model
from model.artifacts.network_models import save_network_model
from model.error_measures import Measure
from model.link_model.training import NotEnoughCounts, measured


def refreshed_link(
    link: LinkSeries,
    output: Path,
    phase: Path | None,
    active: ActiveModel | None,
    plan: Mapping[str, Any],
    capacity: float | None,
) -> LinkOutcome:
    """Write the artifact of a model that newer counts joined; its held-out figures are those it had before."""
    started = time.perf_counter()
    try:
        read = None if phase is None else NetworkStage.read(phase)
        model = None if read is None else read.model(link.link_id)
        if read is None or model is None:
            raise NotEnoughCounts(
                (read.failed if read else "") or "there is no network model of it, and no counts for one"
            )
        before = {} if active is None else load_model(active.folder, fingerprint=active.fingerprint)[1]
        health = examined(link, capacity)
        about = {
            **learnt_from(link, health, data_fingerprint(link, capacity)),
            "plan": before.get("plan", dict(plan)),
            "mu": before.get("mu"),
            "n_iter": before.get("n_iter"),
            "rank": model.rank,
            "held_out": before.get("held_out") or figures_as_json(_nothing_measured(link)),
            "network": read.network,
            "young": not before,
            "refreshed": _refreshed(before),
        }
        save_network_model(output / folder_name(link.link_id), model, read.network, about)
    except Exception as problem:  # one link's failure must not stop the others
        return failure(link.link_id, started, problem)
    return LinkOutcome(link.link_id, "trained", time.perf_counter() - started, about=about)


def _refreshed(before: Mapping[str, Any]) -> dict[str, Any]:
    if not before:
        return {"held_out": "not measured: new to the network"}
    learnt = before.get("refreshed", {}).get("learnt_to", before.get("trained_to"))
    return {"learnt_to": learnt, "held_out": f"carried over from the model learnt up to {learnt}"}


def _nothing_measured(link: LinkSeries) -> dict[str, dict[str, Measure]]:
    nothing = np.full(1, np.nan)
    return measured(nothing, {"candidate": nothing, "profile": nothing}, link.grid.slot_minutes)
