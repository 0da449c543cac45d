"""joblib's Dask backend, for calls that may cost workers their lives. Importing it imports Dask."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from threading import Lock
from typing import Any

from joblib._dask import DaskDistributedBackend

from app.training.cluster import ClusterAway, in_short

Answer = Callable[[Any, BaseException], list[Any] | BaseException]


class ClusterBackend(DaskDistributedBackend):  # type: ignore[misc]
    """Answers for calls that nobody else answers for.

    joblib's own says nothing of a call that Dask gave up: whoever waits for it would wait for good. And
    where the cluster has one thread, it would train in this process.

    Parameters
    ----------
    client : distributed.Client
    answer : callable
        Given a call's arguments and what went wrong with it, returns its results or the exception to raise.
    scatter : list
        Arguments that go to each Dask worker once.
    """

    def __init__(self, client: Any, answer: Answer, scatter: list[Any]) -> None:
        try:
            super().__init__(client=client, scatter=scatter)
        except Exception as problem:
            raise ClusterAway(f"it cannot be sent anything: {in_short(problem)}") from None
        self._answer = answer
        self._open: dict[int, Callable[[Any], None]] = {}
        self._numbers, self._lock = count(), Lock()

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Count the cluster's threads."""
        try:
            return max(2, int(super().effective_n_jobs(n_jobs)))
        except Exception as problem:
            raise ClusterAway(f"it does not answer: {in_short(problem)}") from None

    def submit(self, func: Any, callback: Callable[[Any], None]) -> Future[Any]:
        """Send a call off; ``callback`` hears of it whatever becomes of it."""
        [(_, given, _)] = func.items
        number = next(self._numbers)

        def told(out: Any) -> None:
            with self._lock:
                if self._open.pop(number, None) is None:
                    return  # given up meanwhile
            callback(self._answer(given, out) if isinstance(out, BaseException) else out)

        with self._lock:
            self._open[number] = told
        future: Future[Any] = super().submit(func, told)
        # Of a call that it gave up Dask tells the future alone.
        future.add_done_callback(lambda done: told(problem) if (problem := done.exception()) is not None else None)
        return future

    def give_up(self, problem: BaseException) -> None:
        """Wait for no call any longer."""
        with self._lock:
            waiting = list(self._open.values())
        for told in waiting:
            told(problem)
