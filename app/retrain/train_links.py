"""Train what is left of a run, in parallel processes that end with it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky import reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from app.counts.queries import newest_slots
from app.database import database_now, reading, writing
from app.links.queries import LinkInfo
from app.parent_process import end_with
from app.registry.queries import active_models
from app.registry.store import StoreAway
from app.retrain.beat import Heartbeat
from app.retrain.network_phases import SECONDS_A_DAY, carry_out_phases, stored_from
from app.retrain.queries import set_link, still_mine, waiting_links
from app.retrain.refresh import refreshed_link
from app.retrain.work import Work
from app.train import ActiveModel, LinkOutcome, train_link
from app.train_network import train_in_network

MOST_CRASHES = 3  # of processes that train, without a link trained in between
LOOK_SECONDS = 0.2

log = logging.getLogger("flowcast.retrain")


def trained_links(work: Work, heartbeat: Heartbeat, folder: Path) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    """Give the outcomes of links as they come, until none is left or the run should go no further.

    A process that trains may be killed, for want of memory say; what it and the others had begun is
    begun again, and after several such ends in a row the run is given up.
    """
    crashes = 0
    while not heartbeat.over:
        try:
            with closing(_trained_at_once(work, heartbeat, folder)) as trained:
                for one in trained:
                    crashes = 0
                    yield one
            return
        except Exception as problem:
            if heartbeat.over:  # killed by ourselves, for which joblib has several words
                return
            crashes += 1
            if not isinstance(problem, BrokenProcessPool) or crashes >= MOST_CRASHES:
                raise
            log.warning("a process that trains ended", extra={"run": work.run.id, "reason": type(problem).__name__})


def _trained_at_once(work: Work, heartbeat: Heartbeat, folder: Path) -> Generator[tuple[LinkOutcome, LinkInfo]]:
    with reading(work.engine) as session:
        links = {link.link_id: link for link in waiting_links(session, work.run.id)}
    with _killed_when_over(heartbeat):
        phases = carry_out_phases(work, list(links.values()), folder)

    def calls() -> Iterator[Any]:
        for link in links.values():
            if heartbeat.over or not _mark(work, link):
                return
            yield _prepared(work, link, folder, phases.get(link.link_id))

    # One BLAS thread a process: the processes already use the cores. One link ahead, so that a cancelled
    # run stops soon and a link counts as training only when it is.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1), _killed_when_over(heartbeat):
        parallel = joblib.Parallel(
            n_jobs=work.settings.retrain_jobs, return_as="generator_unordered", pre_dispatch="n_jobs + 1", batch_size=1
        )
        outcomes = parallel(calls())
        try:
            for outcome in outcomes:
                yield outcome, links[outcome.link_id]
                if heartbeat.over:
                    return
        finally:
            outcomes.close()


@contextmanager
def _killed_when_over(heartbeat: Heartbeat) -> Iterator[None]:
    """Kill the processes that train as soon as the run should go no further: half a link is not waited for."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            if heartbeat.over:
                _kill_pool()

    thread = threading.Thread(target=watch, name="kill-when-over", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _kill_pool() -> None:
    # Killed and no more: to shut the pool down from here, or to ask for it, while joblib is at it, can block both.
    executor = reusable_executor._executor
    for process in [] if executor is None else list(executor._processes):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # loky's processes have no kill() of their own


def _mark(work: Work, link: LinkInfo) -> bool:
    """Mark a link as training; False when the run is another worker's, who may have settled it long since."""
    with writing(work.engine, derived=True, served=False) as session:
        now = database_now(session)
        if not still_mine(session, work.run.id, work.worker, now):
            return False
        set_link(session, work.run.id, link.link_key, state="training", started_at=now)
        return True


def _prepared(work: Work, link: LinkInfo, folder: Path, phase: Path | None) -> Any:
    """Give the call that trains a link."""
    with reading(work.engine) as session:
        newest = newest_slots(session, [link.link_key]).get(link.link_key)
        first = None if newest is None else newest - work.days * SECONDS_A_DAY + link.slot_seconds
        series = stored_from(session, link, first)
        place = active_models(session, [link.link_key]).get(link.link_key)
    try:
        active = None if place is None else ActiveModel(work.artifact(place), place.fingerprint)
    except StoreAway as away:  # what is active could not be compared with
        return joblib.delayed(LinkOutcome)(link.link_id, "failed", 0.0, str(away))
    capacity = None if link.capacity is None else link.capacity * link.slot_minutes / 60
    if work.refreshes:
        plan = work.network_training().as_json()
        return joblib.delayed(_beside)(os.getpid(), refreshed_link, series, folder, phase, active, plan, capacity)
    if work.in_networks:
        if phase is None:
            return joblib.delayed(LinkOutcome)(link.link_id, "failed", 0.0, "it has no counts")
        how = work.network_training()
        return joblib.delayed(_beside)(os.getpid(), train_in_network, series, folder, how, phase, "", capacity, active)
    return joblib.delayed(_beside)(os.getpid(), train_link, series, folder, work.plan(), False, capacity, active, phase)


def _beside(parent: int, train: Callable[..., LinkOutcome], *given: Any) -> LinkOutcome:
    """Train a link in a process that does not outlive the worker: nobody would hear what it has to say."""
    if os.getpid() != parent:  # with one job the worker itself trains
        end_with(parent, lambda: os._exit(1))
    return train(*given)
