"""Train the open links of a run: their networks first, then each link, in local processes or on the cluster."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from sqlalchemy.orm import Session

from app.core.database import reading
from app.core.times import SECONDS_A_DAY
from app.counts.queries import newest_slots, stored_span
from app.counts.series import LinkSeries, stored_series
from app.links.queries import LinkInfo, all_links
from app.registry.ensembles import has_ensemble
from app.registry.queries import active_models
from app.registry.store import StoreUnreachable
from app.settings import DaskFallback
from app.training.aligned_counts import read_topology
from app.training.cluster import ClusterUnavailable, UnknownHost, close
from app.training.cluster_task import train_on_cluster
from app.training.link_training import LinkTraining
from app.training.network_stage import (
    ALGORITHMS,
    ActiveModel,
    NetworkStage,
    NetworkTraining,
    execute_stage,
    stage_folder,
)
from app.training.parallel import processes_killed_when, run_parallel
from app.training.queries import set_link, waiting_links
from app.training.run_context import RunContext, RunLost
from app.training.stage_progress import read_share, write_share
from app.training.train_links import LinkOutcome, train_link
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.network_models import network_of
from model.network_model.network import ALGORITHM as NETWORK

MAX_FAILURES = 3  # of training processes or of the cluster, without a link trained in between
RETRY_SECONDS, POLL_SECONDS = 2.0, 0.2

log = logging.getLogger("flowcast.retrain")


def train_run(context: RunContext, folder: Path) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    """Yield the outcomes of links as they complete, until none is left or the run is to stop.

    When a training process is killed, for example because memory ran out, the links that were being trained are
    trained again; after several such failures in a row the run fails. The same holds for a cluster that becomes
    unavailable, unless ``FLOWCAST_DASK_AWAY`` is ``local``: then the run goes on in local processes.
    """
    failures = 0
    # A refresh learns nothing: sending a link to the cluster would take longer than writing its model.
    on_cluster = context.cluster is not None and not context.refreshes
    with processes_killed_when(lambda: context.over):
        while not context.over:
            try:
                with closing(_train_open_links(context, folder, on_cluster)) as trained:
                    for outcome in trained:
                        failures = 0
                        yield outcome
                return
            except Exception as problem:
                if context.over:  # the processes were killed by this one, for which joblib raises several exceptions
                    return
                failures += 1
                on_cluster = _goes_on(context, problem, failures) and on_cluster


def _goes_on(context: RunContext, problem: Exception, failures: int) -> bool:
    """Return whether to go on with the cluster; raise the exception if the run cannot go on."""
    if isinstance(problem, ClusterUnavailable):
        log.warning("the cluster became unavailable", extra={"run": context.run.id, "reason": str(problem)})
        if failures < MAX_FAILURES:
            return True
        if context.settings.dask_away == DaskFallback.LOCAL:
            reason = f"the cluster became unavailable {failures} times in a row: {problem}"
            context.set_detail(f"trained in local processes: {reason}")
            return False
    if failures >= MAX_FAILURES or not isinstance(problem, BrokenProcessPool):
        raise problem
    log.warning("a training process ended", extra={"run": context.run.id, "reason": type(problem).__name__})
    return True


def _train_open_links(context: RunContext, folder: Path, on_cluster: bool) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    client = connect_to_cluster(context) if on_cluster else None
    try:
        if client is not None:
            context.set_detail(None)
        with reading(context.engine) as session:
            links = {link.link_id: link for link in waiting_links(session, context.run.id)}
        given = {**context.run.parameters, "days": context.days}
        how = NetworkTraining.of(context.run.algorithm, given, context.settings.holidays)
        stages = execute_stages(context, how, list(links.values()), folder)
        context.enter_stage("links")
        trainings = prepare_links(context, how, links.values(), stages)
        if client is None:
            calls = (joblib.delayed(train_link)(training, folder) for training in trainings)
            outcomes = run_parallel(calls, jobs=context.settings.retrain_jobs)
        else:
            outcomes = train_on_cluster(client, trainings, folder, lambda: context.over)
        with closing(outcomes):
            for outcome in outcomes:
                yield outcome, links[outcome.link_id]
                if context.over:
                    return
    finally:
        if client is not None:
            close(client)


def prepare_links(
    context: RunContext, how: NetworkTraining, links: Iterable[LinkInfo], stages: Mapping[str, Path]
) -> Iterator[LinkTraining]:
    """Mark links as training and read what they are trained from, one at a time, for as long as the run goes on."""
    for link in links:
        if context.over:
            return
        try:
            with context.lease(derived=True, served=False) as (session, now):
                set_link(session, context.run.id, link.link_key, state="training", started_at=now)
        except RunLost:  # another worker may have trained it long since
            return
        yield _prepare(context, how, link, stages.get(link.link_id))


def _prepare(context: RunContext, how: NetworkTraining, link: LinkInfo, stage: Path | None) -> LinkTraining:
    with reading(context.engine) as session:
        series = last_days(session, link, context.days)
        references = active_models(session, [link.link_key]).get(link.link_key, ())
        aggregates = has_ensemble(session, link.link_key)
    active, refused = {}, ""
    try:
        active = {ref.algorithm: ActiveModel(context.artifact(ref), ref.fingerprint) for ref in references}
    except StoreUnreachable as problem:  # the new models could not be compared with the active ones
        refused = str(problem)
    plan = how if how.algorithm in ALGORITHMS else how.alone
    return LinkTraining(series, plan, link.slot_capacity, active, aggregates, stage, refused=refused)


def connect_to_cluster(context: RunContext) -> Any | None:
    """Return a client of the cluster; None if the run is to be trained in local processes, or to stop."""
    cluster = context.cluster
    assert cluster is not None
    facts = {"run": context.run.id, "scheduler": cluster.address}
    waits, reason = context.settings.dask_away == DaskFallback.WAIT, ""
    while not context.over:
        try:
            client = cluster.connect()
        except ClusterUnavailable as problem:
            if isinstance(problem, UnknownHost) and not cluster.known and not waits:
                log.info("trained in local processes: there is no cluster", extra=facts | {"reason": str(problem)})
                return None
            if reason != str(problem):
                reason = str(problem)
                then = {"reason": reason, "then": context.settings.dask_away}
                log.warning("the cluster is unreachable", extra=facts | then)
                action = "waits for" if waits else "trained in local processes, without"
                context.set_detail(f"{action} the Dask scheduler {cluster.address}: {reason}")
            if not waits:
                return None
            until = time.monotonic() + RETRY_SECONDS
            while time.monotonic() < until and not context.over:
                time.sleep(POLL_SECONDS)
        else:
            log.info("connected to the cluster", extra=facts)
            return client
    return None


class _Stage(NamedTuple):
    """A network stage to execute."""

    folder: Path
    links: list[LinkInfo]  # all of the network's time zone and slot length, from which it is learnt
    active: dict[str, ActiveModel]  # network models that are compared with, or refreshed
    open_ids: set[str]  # of the links that the run trains by it


def execute_stages(
    context: RunContext, how: NetworkTraining, open_links: Sequence[LinkInfo], folder: Path
) -> dict[str, Path]:
    """Execute the network stages of a run's open links; return the folder of each link's stage.

    Stages that an earlier attempt executed are kept. A link whose network has no count has no stage.
    """
    found: dict[str, Path] = {}
    stages = _stages(context, how, open_links, folder)
    for number, stage in enumerate(stages):
        if how.algorithm in ALGORITHMS and not how.refresh:
            context.enter_stage("network", partial(_share_done, stage.folder, number, len(stages)))
        if NetworkStage.read(stage.folder) is not None or _execute(context, how, stage):
            found |= dict.fromkeys(stage.open_ids, stage.folder)
    return found


def _share_done(folder: Path, number: int, stages: int) -> float:
    return (number + read_share(folder)) / stages


def _stages(context: RunContext, how: NetworkTraining, open_links: Sequence[LinkInfo], folder: Path) -> list[_Stage]:
    """Return the stages that a run needs: of links that are trained by themselves for their active network models."""
    with reading(context.engine) as session:
        every = all_links(session)
        references = active_models(session, [link.link_key for link in every])
    context.store.fetch_many((one.folder, one.fingerprint) for of_link in references.values() for one in of_link)
    stages = []
    for zone in sorted({(link.zone_name, link.slot_minutes) for link in open_links}):
        key = f"{zone[0]} {zone[1]}"
        links = [link for link in every if (link.zone_name, link.slot_minutes) == zone]
        open_ids = {link.link_id for link in open_links if (link.zone_name, link.slot_minutes) == zone}
        models_of_links = {  # of all algorithms, so that a store that is out of reach fails the whole run
            (link.link_id, reference.algorithm): ActiveModel(context.artifact(reference), reference.fingerprint)
            for link in links
            for reference in references.get(link.link_key, ())
        }
        active = {link_id: model for (link_id, algorithm), model in models_of_links.items() if algorithm == NETWORK}
        networks = {link_id: network for link_id, model in active.items() if (network := _network(model)) is not None}
        if not how.refresh:
            models = {link_id: active[link_id] for link_id in networks if link_id in open_ids}
            if models or how.algorithm in ALGORITHMS:
                stages.append(_Stage(stage_folder(folder, key), links, models, open_ids))
            continue
        new = open_ids - active.keys()  # which join the network with the most models
        for network, _ in Counter(networks.values()).most_common():
            models = {link_id: active[link_id] for link_id in networks if networks[link_id] == network}
            if wanted := open_ids & models.keys() | new:
                stages.append(_Stage(stage_folder(folder, f"{key} {network}"), links, models, wanted))
            new = set()
    return stages


def _network(model: ActiveModel) -> str | None:
    with suppress(DamagedArtifact, OSError):  # what cannot be read belongs to no network
        return network_of(model.folder)
    return None


def _execute(context: RunContext, how: NetworkTraining, stage: _Stage) -> bool:
    """Execute a stage in a process that can be killed; return False if there is no count to learn from."""
    started = time.perf_counter()
    with reading(context.engine) as session:
        newest = max(newest_slots(session, [link.link_key for link in stage.links]).values(), default=None)
        series = [last_days(session, link, context.days, newest) for link in stage.links]
        topology = read_topology(session, stage.links)
    series = [link for link in series if not np.isnan(link.counts).all()]
    if not series:
        return False
    facts = {"run": context.run.id, "links": len(series)}
    log.info("network begins", extra=facts)
    call = joblib.delayed(execute_stage)(
        stage.folder,
        series,
        topology,
        how,
        active=stage.active,
        drafts=stage.open_ids,
        report=partial(write_share, stage.folder),
    )
    # All cores, because links wait for it; two jobs, because joblib would execute a single one in this process.
    list(run_parallel([call], jobs=2, threads=joblib.cpu_count()))
    read = NetworkStage.read(stage.folder)
    ended = {"seconds": round(time.perf_counter() - started, 2), "reason": read.failed if read else "no stage"}
    log.info("network ends", extra=facts | ended)
    return True


def last_days(session: Session, link: LinkInfo, days: int, newest: int | None = None) -> LinkSeries:
    """Read a link's last days of counts, up to its newest one; days before its first count would only be gaps.

    The days end with the slot ``newest``, in Unix seconds, or with the link's own newest count.
    """
    oldest, last = stored_span(session, link.link_key)
    if oldest is None or last is None:
        return stored_series(session, link)
    first = (last if newest is None else newest) - days * SECONDS_A_DAY + link.slot_seconds
    return stored_series(session, link, max(first, oldest), last)
