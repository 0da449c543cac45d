"""Train one link on a Dask worker, which shares no file system with the process that sent it.

A `LinkTraining` holds everything that one link needs. Only the network that the links of a run share is sent
separately, once to each Dask worker, which keeps it on its disk under its fingerprint.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.counts.series import LinkSeries
from app.links.tables import folder_name
from app.training.cluster import code_facts
from app.training.link_training import ActiveModel, LinkOutcome, failure, train_link
from app.training.network_options import NetworkTraining
from app.training.network_stage import FACTS, NetworkStage
from app.training.network_training import train_in_network
from app.training.prepare import Prepared
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.folder import replaced
from model.artifacts.network_models import NETWORKS, network_of
from model.estimators.descent import OnEvaluation
from model.link_model.training_plan import TrainingPlan

Files = Mapping[str, bytes]

MAX_NETWORKS = 3  # on the disk of a Dask worker: several runs may be under way
FILE = re.compile(r"[A-Za-z0-9_]+\.(json|npy)")
# Folders beside those named after links, which never begin with a dot.
ACTIVE, TRAINED = ".active", ".trained"


class DifferentCode(Exception):
    """A Dask worker has another Flowcast than the sender; the argument is what `code_facts` returns there."""


@dataclass(frozen=True, eq=False)
class NetworkFiles:
    """The artifact of a network that the drafts of many links refer to."""

    fingerprint: str
    files: Files

    @classmethod
    def read(cls, folder: Path) -> NetworkFiles | None:
        """Read the network of a network stage; None if the stage failed or made none."""
        stage = NetworkStage.read(folder)
        if stage is None or stage.failed or "network" not in stage.facts:
            return None
        return cls(stage.network, _read(folder.parent / NETWORKS / stage.network))


@dataclass(frozen=True, eq=False)
class LinkTraining:
    """All that the training of one link needs."""

    series: LinkSeries
    plan: TrainingPlan | NetworkTraining
    capacity: float | None
    active: tuple[Files, str] | None  # the files of the active model's artifact, and its fingerprint
    stage: Files | None  # the link's part of the network stage
    code: Mapping[str, str]

    @classmethod
    def of(cls, link: Prepared, plan: TrainingPlan | NetworkTraining) -> LinkTraining:
        """Read from files what a Dask worker needs to train a link."""
        stage = None if link.phase is None else NetworkStage.read(link.phase)
        files = None if stage is None else _stage_files(stage, link.series.link_id)
        return cls(link.series, plan, link.capacity, _active_files(link.active), files, code_facts())


class TrainedLink(NamedTuple):
    """The outcome of a link's training, and its artifact."""

    outcome: LinkOutcome
    files: Files
    fingerprint: str


def train_on_worker(training: LinkTraining, network: NetworkFiles | None) -> TrainedLink:
    """Train a link on this Dask worker until it is done or cancelled.

    Dask forgets a cancelled task without ending its thread. So each evaluation of a descent's loss checks
    the task's state, which is also "cancelled" after the process that sent the link was killed.
    """
    from distributed import get_worker

    if training.code != code_facts():
        raise DifferentCode(code_facts())
    worker = get_worker()
    key = worker.get_current_task()

    def raise_if_cancelled() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise CancelledError

    started = time.perf_counter()
    try:
        workspace = Path(worker.local_directory) / "flowcast"
        return train_in_workspace(training, network, workspace, raise_if_cancelled)
    except Exception as problem:  # for example a full disk
        return TrainedLink(failure(training.series.link_id, started, problem), {}, "")


def train_in_workspace(
    training: LinkTraining, network: NetworkFiles | None, workspace: Path, on_evaluation: OnEvaluation | None = None
) -> TrainedLink:
    """Write what was sent into a temporary folder of ``workspace``, train, and return what was made."""
    workspace.mkdir(parents=True, exist_ok=True)
    if network is not None:
        _keep_network(network, workspace / NETWORKS)
    # The folder is also that of the network stage: a draft looks for its network one level above.
    with tempfile.TemporaryDirectory(prefix="link-", dir=workspace) as name:
        folder, active, stage = Path(name), None, None
        if training.active is not None:
            files, fingerprint = training.active
            active = ActiveModel(folder / ACTIVE, fingerprint)
            _write(active.folder, files)
        if training.stage is not None:
            _write(folder, training.stage)
            stage = folder
        output = folder / TRAINED
        output.mkdir()
        series, plan, capacity = training.series, training.plan, training.capacity
        if isinstance(plan, TrainingPlan):
            outcome = train_link(series, output, plan, False, capacity, active, stage, on_evaluation)
        elif stage is None:
            outcome = LinkOutcome(series.link_id, "failed", 0.0, "it has no counts")
        else:
            outcome = train_in_network(series, output, plan, stage, "", capacity, active, on_evaluation)
        if outcome.about is None:
            return TrainedLink(outcome, {}, "")
        artifact = output / folder_name(outcome.link_id)
        return TrainedLink(outcome, _read(artifact), read_artifact(artifact, verify=False).fingerprint)


def store_artifact(trained: TrainedLink, folder: Path) -> LinkOutcome:
    """Write the returned artifact into ``folder``, complete and verified; a damaged one makes its link fail."""
    outcome = trained.outcome
    if outcome.about is None:
        return outcome
    try:
        with replaced(folder / folder_name(outcome.link_id)) as new:
            if unexpected := [name for name in trained.files if not FILE.fullmatch(name)]:
                raise DamagedArtifact(new, f"it came with {unexpected[0]!r}, which no artifact has")
            _write(new, trained.files)
            read_artifact(new, fingerprint=trained.fingerprint)
    except DamagedArtifact as damage:
        reason = f"its artifact came back damaged: {damage.reason}"
    except OSError as problem:
        reason = f"its artifact cannot be written: {problem.strerror}"
    else:
        return outcome
    return LinkOutcome(outcome.link_id, "failed", outcome.seconds, reason)


def _stage_files(stage: NetworkStage, link_id: str) -> dict[str, bytes]:
    """Return the files of a folder that reads as the network stage does, for this link alone."""
    files = {}
    methods = [method for method, ids in stage.facts.get("said", {}).items() if link_id in ids]
    for method in methods:
        row = stage.facts["said"][method].index(link_id)
        content = io.BytesIO()
        np.save(content, np.load(stage.folder / f"{method}.npy", mmap_mode="r")[row : row + 1])
        files[f"{method}.npy"] = content.getvalue()
    draft = stage.folder / folder_name(link_id)
    if draft.is_dir():
        files |= {f"{draft.name}/{name}": content for name, content in _read(draft).items()}
    facts = stage.facts | ({"said": {method: [link_id] for method in methods}} if "said" in stage.facts else {})
    return files | {FACTS: json.dumps(facts).encode()}


def _active_files(active: ActiveModel | None) -> tuple[Files, str] | None:
    """Read the active model's artifact; None for a network model, which the stage has judged, or a damaged one."""
    if active is None:
        return None
    try:
        if network_of(active.folder) is not None:
            return None
        return _read(active.folder), active.fingerprint
    except (DamagedArtifact, OSError):
        return None


def _keep_network(network: NetworkFiles, home: Path) -> None:
    target = home / network.fingerprint
    if target.is_dir():
        return
    home.mkdir(exist_ok=True)
    others = sorted(home.iterdir(), key=lambda folder: folder.stat().st_mtime)
    for old in others[: max(0, len(others) - MAX_NETWORKS + 1)]:
        shutil.rmtree(old, ignore_errors=True)
    new = home / f"new-{secrets.token_hex(4)}"
    _write(new, network.files)
    try:
        new.rename(target)
    except OSError:  # another thread was faster
        shutil.rmtree(new)


def _read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
