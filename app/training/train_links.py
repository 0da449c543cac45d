"""Train the open links of a run in parallel: on the cluster that the settings name, or in local processes."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import joblib

from app.core.database import reading
from app.links.queries import LinkInfo
from app.settings import DaskAway
from app.training.cluster import ClusterUnavailable, close
from app.training.heartbeat import Heartbeat
from app.training.link_training import LinkOutcome, train_link
from app.training.network_stages import execute_stages
from app.training.network_training import train_in_network
from app.training.on_cluster import connect_to_cluster, store_detail, train_on_cluster
from app.training.parallel import processes_killed_when, run_parallel
from app.training.prepare import Prepared, prepared_links
from app.training.queries import waiting_links
from app.training.refresh import refreshed_link
from app.training.work import Work

MAX_FAILURES = 3  # of training processes or of the cluster, without a link trained in between

log = logging.getLogger("flowcast.retrain")


def trained_links(work: Work, heartbeat: Heartbeat, folder: Path) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    """Yield the outcomes of links as they complete, until none is left or the run is to stop.

    When a training process is killed, for example because memory ran out, the links that were being trained are
    trained again; after several such failures in a row the run fails. The same holds for a cluster that becomes
    unavailable, except for what ``FLOWCAST_DASK_AWAY`` says about that.
    """
    failures = 0
    # A refresh learns nothing: sending a link to the cluster would take longer than writing its model.
    on_cluster = work.cluster is not None and not work.refreshes
    with processes_killed_when(lambda: heartbeat.over):
        while not heartbeat.over:
            try:
                with closing(_train_open_links(work, heartbeat, folder, on_cluster)) as trained:
                    for one in trained:
                        failures = 0
                        yield one
                return
            except Exception as problem:
                if heartbeat.over:  # killed by ourselves, for which joblib raises several exceptions
                    return
                failures += 1
                on_cluster = _goes_on(work, problem, failures, on_cluster)


def _goes_on(work: Work, problem: Exception, failures: int, on_cluster: bool) -> bool:
    """Return whether to go on with the cluster; raise the exception if the run cannot go on."""
    often = failures >= MAX_FAILURES
    if isinstance(problem, ClusterUnavailable):
        log.warning("the cluster went away", extra={"run": work.run.id, "reason": str(problem)})
        if not often:
            return on_cluster
        if work.settings.dask_away == DaskAway.LOCAL:
            reason = f"the cluster went away {failures} times in a row: {problem}"
            store_detail(work, f"trained in local processes: {reason}")
            return False
    if often or not isinstance(problem, BrokenProcessPool):
        raise problem
    log.warning("a process that trains ended", extra={"run": work.run.id, "reason": type(problem).__name__})
    return on_cluster


def _train_open_links(
    work: Work, heartbeat: Heartbeat, folder: Path, on_cluster: bool
) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    with _client(work, heartbeat, on_cluster) as client:
        with reading(work.engine) as session:
            links = {link.link_id: link for link in waiting_links(session, work.run.id)}
        phases = execute_stages(work, heartbeat, list(links.values()), folder)
        heartbeat.enter_stage("links")
        prepared = prepared_links(work, heartbeat, links.values(), phases)
        outcomes = (
            run_parallel((_call(work, link, folder) for link in prepared), jobs=work.settings.retrain_jobs)
            if client is None
            else train_on_cluster(work, heartbeat, folder, prepared, phases.values(), client)
        )
        with closing(outcomes):
            for outcome in outcomes:
                yield outcome, links[outcome.link_id]
                if heartbeat.over:
                    return


def _call(work: Work, link: Prepared, folder: Path) -> Any:
    """Return the call that trains a link in a local process."""
    series, capacity, active, phase, refused = link
    if refused:
        return joblib.delayed(LinkOutcome)(series.link_id, "failed", 0.0, refused)
    if work.refreshes:
        plan = work.network_training().as_json()
        return joblib.delayed(refreshed_link)(series, folder, phase, active, plan, capacity)
    if work.in_networks:
        if phase is None:
            return joblib.delayed(LinkOutcome)(series.link_id, "failed", 0.0, "it has no counts")
        how = work.network_training()
        return joblib.delayed(train_in_network)(series, folder, how, phase, "", capacity, active)
    return joblib.delayed(train_link)(series, folder, work.plan(), False, capacity, active, phase)


@contextmanager
def _client(work: Work, heartbeat: Heartbeat, on_cluster: bool) -> Iterator[Any | None]:
    """Connect to the cluster while links are trained; None for local processes."""
    client = connect_to_cluster(work, heartbeat) if on_cluster else None
    try:
        yield client
    finally:
        if client is not None:
            close(client)
