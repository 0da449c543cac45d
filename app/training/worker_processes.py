"""The processes that a worker lets train: joblib's, and none of them outlives the worker."""

from __future__ import annotations

import os

import joblib

from app.core.parent_process import end_with


def worker_processes(threads: int) -> joblib.parallel_config:
    """Have joblib work in processes of so many threads each, that end with this one however it ends.

    They are told when they start, not with their first call: a worker may be killed before there is one, and its
    processes would wait for it for minutes.
    """
    return joblib.parallel_config(
        backend="loky", inner_max_num_threads=threads, initializer=_end_with_worker, initargs=(os.getpid(),)
    )


def _end_with_worker(worker: int) -> None:
    end_with(worker, lambda: os._exit(1))
