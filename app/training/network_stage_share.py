"""One link's share of a phase, as files: small enough to be sent along with the link."""

from __future__ import annotations

import io
import json

import numpy as np

from app.links.folders import folder_name
from app.training.network_stage import FACTS, Phase


def share_of(phase: Phase, link_id: str) -> dict[str, bytes]:
    """Give the files of a folder that reads as the phase does, for this link alone."""
    files = {}
    said = [method for method, ids in phase.facts.get("said", {}).items() if link_id in ids]
    for method in said:
        row = phase.facts["said"][method].index(link_id)
        kept = io.BytesIO()
        np.save(kept, np.load(phase.folder / f"{method}.npy", mmap_mode="r")[row : row + 1])
        files[f"{method}.npy"] = kept.getvalue()
    draft = phase.folder / folder_name(link_id)
    for file in sorted(draft.iterdir()) if draft.is_dir() else ():
        files[f"{draft.name}/{file.name}"] = file.read_bytes()
    facts = phase.facts | ({"said": {method: [link_id] for method in said}} if "said" in phase.facts else {})
    return files | {FACTS: json.dumps(facts).encode()}
