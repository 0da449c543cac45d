"""Train links in processes of this machine, which end with the run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky import reusable_executor

from app.training.heartbeat import Heartbeat
from app.training.link_training import LinkOutcome, train_link
from app.training.network_training import train_in_network
from app.training.prepare import Prepared
from app.training.refresh import refreshed_link
from app.training.work import Work
from app.training.worker_processes import worker_processes

LOOK_SECONDS = 0.2


def trained_here(work: Work, heartbeat: Heartbeat, folder: Path, links: Iterator[Prepared]) -> Generator[LinkOutcome]:
    """Give the outcomes of links as they come, until none is left or the run should go no further."""
    # One BLAS thread a process: the processes already use the cores. One link ahead, so that a cancelled
    # run stops soon and a link counts as training only when it is.
    with worker_processes(threads=1), killed_when_over(heartbeat):
        parallel = joblib.Parallel(
            n_jobs=work.settings.retrain_jobs, return_as="generator_unordered", pre_dispatch="n_jobs + 1", batch_size=1
        )
        outcomes = parallel(_call(work, link, folder) for link in links)
        try:
            for outcome in outcomes:
                yield outcome
                if heartbeat.over:
                    return
        finally:
            outcomes.close()


@contextmanager
def killed_when_over(heartbeat: Heartbeat) -> Iterator[None]:
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


def _call(work: Work, link: Prepared, folder: Path) -> Any:
    """Give the call that trains a link."""
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
