"""Train links on the Dask cluster that the settings name, or find it unavailable and decide what follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from app.core.database import database_now, writing
from app.settings import DaskAway
from app.training.cluster import ClusterUnavailable, UnknownHost, difference, one_line
from app.training.cluster_task import (
    DifferentCode,
    LinkTraining,
    NetworkFiles,
    TrainedLink,
    store_artifact,
    train_on_worker,
)
from app.training.heartbeat import Heartbeat
from app.training.link_training import LinkOutcome
from app.training.prepare import Prepared
from app.training.queries import renew_lease, set_detail
from app.training.work import Work

POLL_SECONDS = 0.2
CHECK_SECONDS = 5.0  # between checks of the scheduler, and for its answer
RETRY_SECONDS = 2.0
NO_WORKERS_SECONDS = 60.0  # in which killed Dask workers may be started again

log = logging.getLogger("flowcast.retrain")


def connect_to_cluster(work: Work, heartbeat: Heartbeat) -> Any | None:
    """Return a client of the cluster; None if the run is to be trained in local processes, or to stop."""
    cluster = work.cluster
    assert cluster is not None
    facts = {"run": work.run.id, "scheduler": cluster.address}
    waits, reason = work.settings.dask_away == DaskAway.WAIT, ""
    while not heartbeat.over:
        try:
            client = cluster.connect()
        except ClusterUnavailable as problem:
            if isinstance(problem, UnknownHost) and not cluster.known and not waits:
                log.info("trained here: there is no cluster", extra={"run": work.run.id, "reason": str(problem)})
                return None
            if reason != str(problem):
                reason = str(problem)
                log.warning(
                    "the cluster is unreachable", extra=facts | {"reason": reason, "then": work.settings.dask_away}
                )
                action = "waits for" if waits else "trained in local processes, for want of"
                store_detail(work, f"{action} the Dask scheduler {cluster.address}: {reason}")
            if not waits:
                return None
            _pause(heartbeat)
        else:
            log.info("the cluster is there", extra=facts)
            store_detail(work, None)
            return client
    return None


def store_detail(work: Work, detail: str | None) -> None:
    """Store with a run how it is trained if that is not as set; None removes it."""
    with writing(work.engine, derived=True, served=False) as session:
        if renew_lease(session, work.run.id, work.worker, database_now(session)):
            set_detail(session, work.run.id, detail)


def train_on_cluster(
    work: Work, heartbeat: Heartbeat, folder: Path, links: Iterator[Prepared], stages: Iterable[Path], client: Any
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
    plan = work.network_training() if work.in_networks else work.plan()
    check = _SchedulerCheck(client)
    try:
        executor = client.get_executor(pure=False)
        # Without a hash, because Dask may be about to forget equal content of an earlier run.
        networks = {
            stage: client.scatter(network, broadcast=True, hash=False)
            for stage in set(stages)
            if (network := NetworkFiles.read(stage)) is not None
        }
        threads = sum(client.nthreads(callback_timeout=CHECK_SECONDS).values())
    except Exception as problem:
        raise ClusterUnavailable(f"it cannot be sent anything: {one_line(problem)}") from None
    pending: dict[Future[TrainedLink], str] = {}
    while True:
        # One link more than there are threads, as in local processes.
        while len(pending) <= threads and (link := next(links, None)) is not None:
            if link.refused:
                yield LinkOutcome(link.series.link_id, "failed", 0.0, link.refused)
                continue
            network = None if link.phase is None else networks.get(link.phase)
            try:
                future = executor.submit(train_on_worker, LinkTraining.of(link, plan), network)
            except RuntimeError as problem:
                raise ClusterUnavailable(f"it cannot be sent anything: {one_line(problem)}") from None
            pending[future] = link.series.link_id
        if not pending:
            return
        done, _ = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        if heartbeat.over:
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
        """Raise `ClusterUnavailable` if no link can be trained any more; ask the scheduler now and then."""
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


def _pause(heartbeat: Heartbeat) -> None:
    until = time.monotonic() + RETRY_SECONDS
    while time.monotonic() < until and not heartbeat.over:
        time.sleep(POLL_SECONDS)
