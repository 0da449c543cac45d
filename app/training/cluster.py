"""The Dask cluster that the settings name: reached, checked, or found to be away with the reason.

Dask is imported only where there is a scheduler to reach.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from app.settings.dask_address import host_and_port
from app.training.same_code import difference

PROBE_SECONDS = 2.0
CONNECT_SECONDS = 5.0
WORKERS_SECONDS = 5.0  # for the first worker to come
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 5.0
SCHEDULER = "the scheduler"

log = logging.getLogger("flowcast.retrain")


class ClusterAway(Exception):
    """The cluster cannot train now; says why."""


class NoSuchHost(ClusterAway):
    """The scheduler's name has no address."""


class Cluster:
    """A scheduler's address, and whether its name was ever known here."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.known = False

    def look(self) -> None:
        """Find out, when a worker starts, whether there is such a host, and say so in the log."""
        host, port = host_and_port(self.address)
        try:
            socket.getaddrinfo(host, port)
        except OSError as problem:
            reason = f"{host} has no address: {problem.strerror}"
            log.info("there is no cluster as yet", extra={"scheduler": self.address, "reason": reason})
        else:
            self.known = True
            log.info("runs are trained on a cluster", extra={"scheduler": self.address})

    def connect(self) -> Any:
        """Give a client of the scheduler, whose workers were found to train as this machine does.

        Raises
        ------
        ClusterAway
            There is nobody, or nobody who could train.
        """
        self._probe()
        client = self._client()
        try:
            _check(client)
        except BaseException:
            close(client)
            raise
        return client

    def _probe(self) -> None:
        """Knock first: Dask would try for seconds where nobody answers, and has no short word for it."""
        host, port = host_and_port(self.address)
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except socket.gaierror as problem:
            raise NoSuchHost(f"{host} has no address: {problem.strerror}") from None
        except OSError as problem:
            self.known = True
            raise ClusterAway(problem.strerror or str(problem)) from None
        self.known = True

    def _client(self) -> Any:
        from distributed import Client

        for name in ("distributed", "distributed.client"):  # what they tell in pages is told here in a line
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            return Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False, name="flowcast-retrain")
        except Exception as problem:  # of many kinds: TLS alone has several
            raise ClusterAway(f"no Dask scheduler answers there: {in_short(problem)}") from None


def close(client: Any) -> None:
    """Let go of the scheduler, which then ends what it does for us."""
    with suppress(Exception):  # it may be gone
        client.close(timeout=CLOSE_SECONDS)


def in_short(problem: BaseException) -> str:
    """Say in one line what went wrong."""
    lines = str(problem).splitlines()
    return f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__


def _check(client: Any) -> None:
    def facts() -> dict[str, str]:  # in here, so that it is sent as it is: the other side may lack the module
        from app.training.same_code import code_facts

        return code_facts()

    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError:
        raise ClusterAway("it has no workers") from None
    try:
        answers = {SCHEDULER: _answer(client.run_on_scheduler, facts)}
        answers |= client.run(facts, on_error="return", callback_timeout=ANSWER_SECONDS)
    except (OSError, TimeoutError) as problem:
        raise ClusterAway(f"it does not answer: {in_short(problem)}") from None
    answers = {name: answer for name, answer in answers.items() if not isinstance(answer, OSError)}  # on its way out
    if len(answers) < 2:
        raise ClusterAway("its workers do not answer")
    for name, answer in answers.items():
        who = name if name == SCHEDULER else f"the Dask worker {name}"
        if isinstance(answer, BaseException):
            raise ClusterAway(f"{who} cannot run Flowcast: {in_short(answer)}")
        if other := difference(answer):
            raise ClusterAway(f"{who} has another Flowcast: {other}")


def _answer(ask: Callable[..., Any], facts: Callable[[], dict[str, str]]) -> Any:
    try:
        return ask(facts, callback_timeout=ANSWER_SECONDS)
    except (OSError, TimeoutError):
        raise
    except Exception as problem:
        return problem
