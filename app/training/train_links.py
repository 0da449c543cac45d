"""Train what is left of a run, in parallel: on the cluster that the settings name, or in local processes."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from joblib.externals.loky.process_executor import BrokenProcessPool

from app.core.database import reading
from app.links.queries import LinkInfo
from app.settings.dask_address import DaskAway
from app.training.cluster import ClusterAway, close
from app.training.heartbeat import Heartbeat
from app.training.link_training import LinkOutcome
from app.training.local_processes import killed_when_over, trained_here
from app.training.network_stages import carry_out_phases
from app.training.on_cluster import note, reached, trained_there
from app.training.prepare import prepared_links
from app.training.queries import waiting_links
from app.training.work import Work

MOST_CRASHES = 3  # of processes that train, or of the cluster, without a link trained in between

log = logging.getLogger("flowcast.retrain")


def trained_links(work: Work, heartbeat: Heartbeat, folder: Path) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    """Give the outcomes of links as they come, until none is left or the run should go no further.

    A process that trains may be killed, for want of memory say; what it and the others had begun is
    begun again, and after several such ends in a row the run is given up. So it is with a cluster that
    goes away, but for what the settings say of that.
    """
    crashes = 0
    # A refresh learns nothing: to send a link off would take longer than to write its model.
    on_cluster = work.cluster is not None and not work.refreshes
    while not heartbeat.over:
        try:
            with closing(_trained_at_once(work, heartbeat, folder, on_cluster)) as trained:
                for one in trained:
                    crashes = 0
                    yield one
            return
        except Exception as problem:
            if heartbeat.over:  # killed by ourselves, for which joblib has several words
                return
            crashes += 1
            on_cluster = _goes_on(work, problem, crashes, on_cluster)


def _goes_on(work: Work, problem: Exception, crashes: int, on_cluster: bool) -> bool:
    """Tell whether to go on with the cluster; raise what a run cannot go on after."""
    often = crashes >= MOST_CRASHES
    if isinstance(problem, ClusterAway):
        log.warning("the cluster went away", extra={"run": work.run.id, "reason": str(problem)})
        if not often:
            return on_cluster
        if work.settings.dask_away == DaskAway.LOCAL:
            note(work, f"trained in local processes: the cluster went away {crashes} times in a row: {problem}")
            return False
    if often or not isinstance(problem, BrokenProcessPool):
        raise problem
    log.warning("a process that trains ended", extra={"run": work.run.id, "reason": type(problem).__name__})
    return on_cluster


def _trained_at_once(
    work: Work, heartbeat: Heartbeat, folder: Path, on_cluster: bool
) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    with _client(work, heartbeat, on_cluster) as client:
        with reading(work.engine) as session:
            links = {link.link_id: link for link in waiting_links(session, work.run.id)}
        with killed_when_over(heartbeat):
            phases = carry_out_phases(work, heartbeat, list(links.values()), folder)
        heartbeat.enter_stage("links")
        ready = prepared_links(work, heartbeat, links.values(), phases)
        if client is None:
            outcomes = trained_here(work, heartbeat, folder, ready)
        else:
            outcomes = trained_there(work, heartbeat, folder, ready, phases.values(), client)
        with closing(outcomes):
            for outcome in outcomes:
                yield outcome, links[outcome.link_id]


@contextmanager
def _client(work: Work, heartbeat: Heartbeat, on_cluster: bool) -> Iterator[Any | None]:
    """Give a client of the cluster for as long as links are trained; None for local processes."""
    client = reached(work, heartbeat) if on_cluster else None
    try:
        yield client
    finally:
        if client is not None:
            close(client)
