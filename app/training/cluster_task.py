"""Train links on a Dask cluster, whose workers share no file system with the process that sends the links.

A `ClusterTask` holds everything that one link needs. Only the network that the links of a run share is sent
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
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.links.tables import folder_name
from app.training.cluster import ClusterUnavailable, code_facts, difference, one_line
from app.training.link_training import LinkTraining
from app.training.network_stage import FACTS, ActiveModel, NetworkStage, reason_of
from app.training.train_links import LinkOutcome, train_link
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.folder import replace_folder
from model.artifacts.network_models import NETWORKS, network_of
from model.estimators.descent import OnEvaluation

Files = Mapping[str, bytes]

POLL_SECONDS = 0.2
CHECK_SECONDS = 5.0  # between checks of the scheduler, and for its answer
NO_WORKERS_SECONDS = 60.0  # in which killed Dask workers may be started again
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
class ClusterTask:
    """The training of one link, with files instead of folders."""

    training: LinkTraining
    active: dict[str, tuple[Files, str]]  # by algorithm, the files of an active model's artifact, and its fingerprint
    stage: Files | None  # the link's part of the network stage
    code: Mapping[str, str]

    @classmethod
    def of(cls, training: LinkTraining) -> ClusterTask:
        """Read the files that a Dask worker needs to train a link."""
        stage = None if training.stage is None else NetworkStage.read(training.stage)
        files = None if stage is None else _stage_files(stage, training.series.link_id)
        active = {algorithm: (_active_files(one), one.fingerprint) for algorithm, one in training.active.items()}
        return cls(replace(training, active={}, stage=None), active, files, code_facts())


class TrainedLink(NamedTuple):
    """The outcome of a link's training, and by algorithm the files of its artifacts with their fingerprints."""

    outcome: LinkOutcome
    artifacts: Mapping[str, tuple[Files, str]]


def train_on_cluster(
    client: Any, trainings: Iterator[LinkTraining], folder: Path, is_over: Callable[[], bool]
) -> Generator[LinkOutcome]:
    """Yield the outcomes of links as they complete; their artifacts are written into ``folder``.

    Links are futures of the client's executor, because joblib's Dask backend waits for ever for a task that Dask
    gave up, and runs the tasks in this process if the cluster has one thread (docs/decisions/0016). Closing the
    client cancels whatever is left.

    Raises
    ------
    ClusterUnavailable
        The scheduler or all of its workers are gone; links under way are lost.
    """
    check = _SchedulerCheck(client)
    try:
        executor = client.get_executor(pure=False)
        threads = sum(client.nthreads(callback_timeout=CHECK_SECONDS).values())
    except Exception as problem:
        raise ClusterUnavailable(f"nothing can be sent to it: {one_line(problem)}") from None
    networks: dict[Path | None, Any] = {}  # by stage, the futures of networks that were sent
    pending: dict[Future[TrainedLink], str] = {}
    while True:
        # One link more than there are threads, as in local processes.
        while len(pending) <= threads and (training := next(trainings, None)) is not None:
            task, stage = ClusterTask.of(training), training.stage
            try:
                if stage is not None and stage not in networks:
                    network = NetworkFiles.read(stage)
                    # Not identified by a hash, because Dask may just be deleting equal content of an earlier run.
                    networks[stage] = network and client.scatter(network, broadcast=True, hash=False)
                future = executor.submit(train_on_worker, task, networks.get(stage))
            except Exception as problem:
                raise ClusterUnavailable(f"nothing can be sent to it: {one_line(problem)}") from None
            pending[future] = training.series.link_id
        if not pending:
            return
        done, _ = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        if is_over():
            return
        if done:
            future = done.pop()
            yield _outcome(future, pending.pop(future), folder)
        check.raise_if_gone()


def _outcome(future: Future[TrainedLink], link_id: str, folder: Path) -> LinkOutcome:
    """Return the outcome of a link; one that ended several Dask workers in a row has failed."""
    from distributed.scheduler import KilledWorker

    try:
        return store_artifact(future.result(), folder)
    except KilledWorker as problem:
        deaths = f"it ended {problem.allowed_failures + 1} Dask workers in a row"
        return LinkOutcome(link_id, "failed", 0.0, f"{deaths}, the last {problem.last_worker.address}")
    except DifferentCode as other:  # a Dask worker that joined after the check
        reason = f"a Dask worker has another Flowcast: {difference(other.args[0])}"
    except Exception as problem:
        reason = f"it gave up a link: {one_line(problem)}"
    raise ClusterUnavailable(reason)


class _SchedulerCheck:
    """Checks that the scheduler answers, and that it has been without workers only for a short time."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._checked_at = self._workers_at = time.monotonic()

    def raise_if_gone(self) -> None:
        """Raise `ClusterUnavailable` if no link can be trained any more; query the scheduler now and then."""
        if self._client.status != "running":
            raise ClusterUnavailable("the connection to it was lost")
        now = time.monotonic()
        if now < self._checked_at + CHECK_SECONDS:
            return
        self._checked_at = now
        try:
            has_workers = bool(self._client.nthreads(callback_timeout=CHECK_SECONDS))
        except Exception as problem:
            raise ClusterUnavailable(f"it does not answer: {one_line(problem)}") from None
        if has_workers:
            self._workers_at = now
        elif now >= self._workers_at + NO_WORKERS_SECONDS:
            raise ClusterUnavailable("its workers are gone")


def train_on_worker(task: ClusterTask, network: NetworkFiles | None) -> TrainedLink:
    """Train a link on this Dask worker until it is done or cancelled.

    Dask forgets a cancelled task without ending its thread. So each evaluation of a descent's loss checks
    the task's state, which is also "cancelled" after the process that sent the link was killed.
    """
    from distributed import get_worker

    if task.code != code_facts():
        raise DifferentCode(code_facts())
    worker = get_worker()
    key = worker.get_current_task()

    def raise_if_cancelled() -> None:
        state = worker.state.tasks.get(key)
        if state is None or state.state == "cancelled":
            raise CancelledError

    started = time.perf_counter()
    try:
        return train_in_workspace(task, network, Path(worker.local_directory) / "flowcast", raise_if_cancelled)
    except Exception as problem:  # for example a full disk
        seconds = time.perf_counter() - started
        return TrainedLink(LinkOutcome(task.training.series.link_id, "failed", seconds, reason_of(problem)), {})


def train_in_workspace(
    task: ClusterTask, network: NetworkFiles | None, workspace: Path, on_evaluation: OnEvaluation | None = None
) -> TrainedLink:
    """Write what was sent into a temporary folder of ``workspace``, train, and return what was made."""
    workspace.mkdir(parents=True, exist_ok=True)
    if network is not None:
        _keep_network(network, workspace / NETWORKS)
    # The folder is also that of the network stage: a draft looks for its network one level above.
    with tempfile.TemporaryDirectory(prefix="link-", dir=workspace) as name:
        folder, active = Path(name), {}
        for algorithm, (files, fingerprint) in task.active.items():
            active[algorithm] = ActiveModel(folder / ACTIVE / algorithm, fingerprint)
            _write(active[algorithm].folder, files)
        training = replace(task.training, active=active)
        if task.stage is not None:
            _write(folder, task.stage)
            training = replace(training, stage=folder)
        output = folder / TRAINED
        output.mkdir()
        outcome = train_link(training, output, on_evaluation)
        artifacts = {
            algorithm: (_read(artifact), read_artifact(artifact, verify=False).fingerprint)
            for algorithm, artifact in outcome.artifacts(output).items()
        }
        return TrainedLink(outcome, artifacts)


def store_artifact(trained: TrainedLink, folder: Path) -> LinkOutcome:
    """Write the returned artifacts into ``folder``, complete and verified; a damaged one makes its link fail."""
    outcome = trained.outcome
    try:
        for algorithm, target in outcome.artifacts(folder).items():
            files, fingerprint = trained.artifacts[algorithm]
            with replace_folder(target) as new:
                if unexpected := [name for name in files if not FILE.fullmatch(name)]:
                    raise DamagedArtifact(new, f"it came with {unexpected[0]!r}, which no artifact has")
                _write(new, files)
                read_artifact(new, fingerprint=fingerprint)
    except DamagedArtifact as damage:
        reason = f"its artifact came back damaged: {damage.reason}"
    except OSError as problem:
        reason = f"its artifact cannot be written: {problem.strerror}"
    else:
        return outcome
    return LinkOutcome(outcome.link_id, "failed", outcome.seconds, reason)


def _stage_files(stage: NetworkStage, link_id: str) -> dict[str, bytes]:
    """Return the files of a folder that reads as the network stage does, for this link alone."""
    files, rows = {}, {}
    for method, link_ids in stage.forecast_links.items():
        if link_id in link_ids:
            row, content = link_ids.index(link_id), io.BytesIO()
            np.save(content, np.load(stage.folder / f"{method}.npy", mmap_mode="r")[row : row + 1])
            files[f"{method}.npy"] = content.getvalue()
            rows[method] = [link_id]
    draft = stage.folder / folder_name(link_id)
    if draft.is_dir():
        files |= {f"{draft.name}/{name}": content for name, content in _read(draft).items()}
    return files | {FACTS: json.dumps(stage.facts | {"forecasts": rows}).encode()}


def _active_files(active: ActiveModel) -> Files:
    """Read an active model's artifact; nothing of a network model, which its stage has forecast, or a damaged one."""
    try:
        return {} if network_of(active.folder) is not None else _read(active.folder)
    except (DamagedArtifact, OSError):
        return {}


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
