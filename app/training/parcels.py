"""What goes to a Dask worker and what comes back: a link's training, with no file system in common.

A parcel holds all that one link needs. Only the network that the links of a run share goes apart from
them, once to a Dask worker, which keeps it by its fingerprint for as long as it runs.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app.counts.series import LinkSeries
from app.links.folders import folder_name
from app.training.abandoned import ended_when_abandoned
from app.training.link_training import ActiveModel, LinkOutcome, failure, train_link
from app.training.network_options import NetworkTraining
from app.training.network_stage import Phase
from app.training.network_stage_share import share_of
from app.training.network_training import train_in_network
from app.training.same_code import code_facts
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.folder import replaced
from model.artifacts.network_models import NETWORKS, network_of
from model.link_model.training_plan import TrainingPlan

Files = Mapping[str, bytes]

MOST_NETWORKS = 3  # that a Dask worker keeps: several runs may be under way
FILE = re.compile(r"[A-Za-z0-9_]+\.(json|npy)")
# In a link's folder on a Dask worker, beside what is named after links, which never begins with a dot.
ACTIVE, MADE = ".active", ".made"


class OtherCode(Exception):
    """A Dask worker has another Flowcast than whoever sent the parcel; holds what it has."""


@dataclass(frozen=True, eq=False)
class SentNetwork:
    """The artifact of a network that the drafts of many links refer to."""

    fingerprint: str
    files: Files

    def __dask_tokenize__(self) -> str:
        # Never the same twice: Dask may be about to forget what was sent under the same name before.
        return secrets.token_hex(16)

    @classmethod
    def of(cls, phase: Phase) -> SentNetwork | None:
        """Read the network of a phase; None where it made none."""
        if phase.failed or "network" not in phase.facts:
            return None
        return cls(phase.network, _read(phase.folder.parent / NETWORKS / phase.network))


@dataclass(frozen=True, eq=False)
class Parcel:
    """All that the training of one link needs."""

    series: LinkSeries
    how: TrainingPlan | NetworkTraining
    capacity: float | None
    active: tuple[Files, str] | None  # the files of the active model's artifact, and its fingerprint
    phase: Files | None
    code: Mapping[str, str]


class Returned(NamedTuple):
    """What became of a link, and its artifact."""

    outcome: LinkOutcome
    files: Files
    fingerprint: str


def packed(
    series: LinkSeries,
    how: TrainingPlan | NetworkTraining,
    capacity: float | None,
    active: ActiveModel | None,
    phase: Path | None,
) -> Parcel:
    """Put a link's training into a parcel."""
    read = None if phase is None else Phase.read(phase)
    share = None if read is None else share_of(read, series.link_id)
    return Parcel(series, how, capacity, _active(active), share, code_facts())


def train_there(parcel: Parcel, network: SentNetwork | None) -> Returned:
    """Train a link on a Dask worker, for as long as somebody wants it."""
    from distributed import get_worker

    if parcel.code != code_facts():
        raise OtherCode(code_facts())
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    started = time.perf_counter()
    try:
        with ended_when_abandoned(wanted):
            return train_parcel(parcel, network, Path(worker.local_directory) / "flowcast")
    except Exception as problem:  # a full disk there, say
        return Returned(failure(parcel.series.link_id, started, problem), {}, "")


def train_parcel(parcel: Parcel, network: SentNetwork | None, room: Path) -> Returned:
    """Unpack a parcel in a folder of its own in ``room``, train, and give back what was made."""
    room.mkdir(parents=True, exist_ok=True)
    if network is not None:
        _keep(network, room / NETWORKS)
    # The folder is the link's phase as well: its draft looks for the network one level above.
    with tempfile.TemporaryDirectory(prefix="link-", dir=room) as name:
        folder = Path(name)
        active = None
        if parcel.active is not None:
            files, fingerprint = parcel.active
            active = ActiveModel(folder / ACTIVE, fingerprint)
            _write(active.folder, files)
        if parcel.phase is not None:
            _write(folder, parcel.phase)
        made = folder / MADE
        made.mkdir()
        outcome = _trained(parcel, made, active, None if parcel.phase is None else folder)
        if outcome.about is None:
            return Returned(outcome, {}, "")
        artifact = made / folder_name(outcome.link_id)
        return Returned(outcome, _read(artifact), read_artifact(artifact, verify=False).fingerprint)


def unpacked(returned: Returned, folder: Path) -> LinkOutcome:
    """Put the artifact that came back into ``folder``, whole and checked; one that is not is the link's failure."""
    outcome = returned.outcome
    if outcome.about is None:
        return outcome
    try:
        with replaced(folder / folder_name(outcome.link_id)) as new:
            if strange := [name for name in returned.files if not FILE.fullmatch(name)]:
                raise DamagedArtifact(new, f"it came with {strange[0]!r}, which no artifact has")
            _write(new, returned.files)
            read_artifact(new, fingerprint=returned.fingerprint)
    except DamagedArtifact as damage:
        reason = f"its artifact came back damaged: {damage.reason}"
    except OSError as problem:
        reason = f"its artifact cannot be written: {problem.strerror}"
    else:
        return outcome
    return LinkOutcome(outcome.link_id, "failed", outcome.seconds, reason)


def _trained(parcel: Parcel, made: Path, active: ActiveModel | None, phase: Path | None) -> LinkOutcome:
    series, how, capacity = parcel.series, parcel.how, parcel.capacity
    if isinstance(how, TrainingPlan):
        return train_link(series, made, how, False, capacity, active, phase)
    if phase is None:
        return LinkOutcome(series.link_id, "failed", 0.0, "it has no counts")
    return train_in_network(series, made, how, phase, "", capacity, active)


def _active(active: ActiveModel | None) -> tuple[Files, str] | None:
    """Read the active model's artifact; a network model has spoken in the phase, and one that is damaged is none."""
    if active is None:
        return None
    try:
        if network_of(active.folder) is not None:
            return None
        return _read(active.folder), active.fingerprint
    except (DamagedArtifact, OSError):
        return None


def _keep(network: SentNetwork, home: Path) -> None:
    target = home / network.fingerprint
    if target.is_dir():
        return
    home.mkdir(exist_ok=True)
    others = sorted(home.iterdir(), key=lambda folder: folder.stat().st_mtime)
    for old in others[: max(0, len(others) - MOST_NETWORKS + 1)]:
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
