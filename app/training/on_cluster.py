"""Train links on the Dask cluster that the settings name, or find that it is away and what that means."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib

from app.core.database import database_now, writing
from app.settings.dask_address import DaskAway
from app.training.cluster import ClusterAway, NoSuchHost, in_short
from app.training.heartbeat import Heartbeat
from app.training.link_training import LinkOutcome
from app.training.network_stage import Phase
from app.training.parcels import OtherCode, Parcel, Returned, SentNetwork, packed, train_there, unpacked
from app.training.prepare import Prepared
from app.training.queries import set_detail, still_mine
from app.training.same_code import difference
from app.training.work import Work

LOOK_SECONDS = 0.2
ASK_SECONDS = 5.0  # between looks whether the scheduler still answers, and for its answer
RETRY_SECONDS = 2.0
NO_WORKERS_SECONDS = 60.0  # those that were killed have so long to be started again

log = logging.getLogger("flowcast.retrain")


def reached(work: Work, heartbeat: Heartbeat) -> Any | None:
    """Give a client of the cluster; None where there is none and the run is to be trained here, or to end."""
    cluster = work.cluster
    assert cluster is not None
    waits, said = work.settings.dask_away == DaskAway.WAIT, ""
    while not heartbeat.over:
        try:
            client = cluster.connect()
        except ClusterAway as away:
            if isinstance(away, NoSuchHost) and not cluster.known and not waits:
                log.info("trained here: there is no cluster", extra={"run": work.run.id, "reason": str(away)})
                return None
            if said != str(away):
                said = str(away)
                log.warning(
                    "the cluster is away", extra=_facts(work) | {"reason": said, "then": work.settings.dask_away}
                )
                do = "waits for" if waits else "trained in local processes, for want of"
                note(work, f"{do} the Dask scheduler {cluster.address}: {said}")
            if not waits:
                return None
            _pause(heartbeat)
        else:
            log.info("the cluster is there", extra=_facts(work))
            note(work, None)
            return client
    return None


def note(work: Work, detail: str | None) -> None:
    """Say with a run how it is carried out, where that is not as set; None takes it back."""
    with writing(work.engine, derived=True, served=False) as session:
        if still_mine(session, work.run.id, work.worker, database_now(session)):
            set_detail(session, work.run.id, detail)


def trained_there(
    work: Work, heartbeat: Heartbeat, folder: Path, links: Iterator[Prepared], phases: Iterable[Path], client: Any
) -> Generator[LinkOutcome]:
    """Give the outcomes of links as they come; their artifacts are put into ``folder``.

    Raises
    ------
    ClusterAway
        The scheduler or all of its workers are gone; what was under way is lost.
    """
    from app.training.dask_backend import ClusterBackend

    how = work.network_training() if work.in_networks else work.plan()
    networks = {phase: SentNetwork.of(read) for phase in set(phases) if (read := Phase.read(phase)) is not None}
    backend = ClusterBackend(client, _answer, [network for network in networks.values() if network is not None])

    def calls() -> Iterator[Any]:
        for series, capacity, active, phase, refused in links:
            if refused:
                yield joblib.delayed(Returned)(LinkOutcome(series.link_id, "failed", 0.0, refused), {}, "")
                continue
            parcel = packed(series, how, capacity, active, phase)
            yield joblib.delayed(train_there)(parcel, None if phase is None else networks.get(phase))

    with joblib.parallel_config(backend=backend), _given_up_when_over(heartbeat, backend, client):
        # One link ahead, as in local processes.
        parallel = joblib.Parallel(n_jobs=-1, return_as="generator_unordered", pre_dispatch="n_jobs + 1", batch_size=1)
        came = parallel(calls())
        try:
            for returned in came:
                yield unpacked(returned, folder)
                if heartbeat.over:
                    return
        except OtherCode as other:  # a worker that joined later
            raise ClusterAway(f"a Dask worker has another Flowcast: {difference(other.args[0])}") from None
        finally:
            with warnings.catch_warnings():
                # joblib's advice to whoever leaves early.
                warnings.filterwarnings("ignore", category=UserWarning, module="joblib")
                came.close()


def _answer(given: tuple[Parcel, Any], problem: BaseException) -> list[Any] | BaseException:
    """Say what becomes of a call that Dask gave up: a link that ends one worker after another fails by itself."""
    from distributed.scheduler import KilledWorker

    if isinstance(problem, KilledWorker):
        reason = (
            f"it ended {problem.allowed_failures + 1} Dask workers in a row, the last {problem.last_worker.address}"
        )
        return [Returned(LinkOutcome(given[0].series.link_id, "failed", 0.0, reason), {}, "")]
    return problem if isinstance(problem, ClusterAway) else ClusterAway(f"it gave up a link: {in_short(problem)}")


@contextmanager
def _given_up_when_over(heartbeat: Heartbeat, backend: Any, client: Any) -> Iterator[None]:
    """Wait for no link any longer once the run should go no further, or there is nobody to wait for."""
    ended = threading.Event()

    def watch() -> None:
        workers_at = asked_at = time.monotonic()
        gone = ""
        while not ended.wait(LOOK_SECONDS):
            now = time.monotonic()
            if client.status != "running":
                gone = "the connection to it was lost"
            elif now >= asked_at + ASK_SECONDS:
                asked_at = now
                try:
                    workers_at = now if client.nthreads(callback_timeout=ASK_SECONDS) else workers_at
                    gone = "its workers are gone" if now >= workers_at + NO_WORKERS_SECONDS else ""
                except Exception as problem:
                    gone = f"it does not answer: {in_short(problem)}"
            if gone or heartbeat.over:
                backend.give_up(ClusterAway(gone or "the run is over"))

    thread = threading.Thread(target=watch, name="given-up-when-over", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _facts(work: Work) -> dict[str, Any]:
    assert work.cluster is not None
    return {"run": work.run.id, "scheduler": work.cluster.address}


def _pause(heartbeat: Heartbeat) -> None:
    until = time.monotonic() + RETRY_SECONDS
    while time.monotonic() < until and not heartbeat.over:
        time.sleep(LOOK_SECONDS)
