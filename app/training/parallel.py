"""Run calls in parallel processes of this machine, which end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import joblib

from app.core.parent_process import end_with

POLL_SECONDS = 0.2


def run_parallel(calls: Iterable[Any], *, jobs: int, threads: int = 1) -> Generator[Any]:
    """Run `joblib.delayed` calls in local processes and yield their results in the order of completion.

    Parameters
    ----------
    calls : iterable
        Read by several threads, and no more than one call beyond the number of processes, so that a stopped run ends
        soon and a link is marked as training only when it is.
    jobs : int
        How many processes; -1 for one a core. With 1 the calls run in this process.
    threads : int, default=1
        BLAS threads of each process; 1 because the processes already use the cores.
    """
    # An initializer, because the parent may be killed before the first call reaches a process.
    with joblib.parallel_config(
        backend="loky", inner_max_num_threads=threads, initializer=_end_with_parent, initargs=(os.getpid(),)
    ):
        parallel = joblib.Parallel(
            n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs + 1", batch_size=1
        )
        try:
            with closing(parallel(calls)) as results:
                yield from results
        except RuntimeError as problem:
            # joblib cannot shut down an executor whose start Ctrl-C has interrupted: it joins a thread not yet started.
            if isinstance(problem.__context__, KeyboardInterrupt):
                raise problem.__context__ from None
            raise


@contextmanager
def processes_killed_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Kill the processes of `run_parallel` once ``is_over`` returns True; the call then raises BrokenProcessPool."""
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(POLL_SECONDS):
            if is_over():
                _kill_processes()

    thread = threading.Thread(target=poll, name="kill-when-over", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _kill_processes() -> None:
    # loky's executor is not shut down here: while joblib uses it in another thread, both could block.
    for process in multiprocessing.active_children():
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def _end_with_parent(parent: int) -> None:
    end_with(parent, lambda: os._exit(1))
