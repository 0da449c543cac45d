"""Connect to the Dask cluster that the settings name, and check that it would train as this machine does.

Dask is imported only when there is a scheduler to connect to.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from app.settings import host_and_port

PROBE_SECONDS = 2.0
CONNECT_SECONDS = 5.0
WORKERS_SECONDS = 5.0  # until the first worker is there
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 5.0
CODE = Path(__file__).parents[2]  # the folder of app/ and model/
PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "distributed")

log = logging.getLogger("flowcast.retrain")


class ClusterUnavailable(Exception):
    """The cluster cannot train now; the message is the reason."""


class UnknownHost(ClusterUnavailable):
    """The scheduler's name has no address."""


class Cluster:
    """A scheduler's address, and whether its name ever had an IP address in this process."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.known = False

    def log_address(self) -> None:
        """Resolve the scheduler's name when a worker starts, and log the result."""
        host, port = host_and_port(self.address)
        try:
            socket.getaddrinfo(host, port)
        except OSError as problem:
            reason = f"{host} has no address: {problem.strerror}"
            log.info("there is no cluster so far", extra={"scheduler": self.address, "reason": reason})
        else:
            self.known = True
            log.info("runs are trained on a cluster", extra={"scheduler": self.address})

    def connect(self) -> Any:
        """Return a `distributed.Client` whose scheduler and workers have the same Flowcast as this machine.

        Raises
        ------
        ClusterUnavailable
            There is no scheduler, no worker, or another Flowcast.
        """
        self._probe()
        from distributed import Client

        for name in ("distributed", "distributed.client"):  # their long messages are logged as one line instead
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            client = Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False, name="flowcast-retrain")
        except Exception as problem:  # of many kinds: TLS alone has several
            raise ClusterUnavailable(f"no Dask scheduler answers at this address: {one_line(problem)}") from None
        try:
            _check(client)
        except BaseException:
            close(client)
            raise
        return client

    def _probe(self) -> None:
        """Try a TCP connection first: Dask would retry for seconds, and its error is long."""
        host, port = host_and_port(self.address)
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except socket.gaierror as problem:
            raise UnknownHost(f"{host} has no address: {problem.strerror}") from None
        except OSError as problem:
            self.known = True
            raise ClusterUnavailable(problem.strerror or str(problem)) from None
        self.known = True


def close(client: Any) -> None:
    """Close a client; the scheduler then cancels its tasks."""
    with suppress(Exception):  # the scheduler may be gone
        client.close(timeout=CLOSE_SECONDS)


def one_line(problem: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    lines = str(problem).splitlines()
    return f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__


@lru_cache
def code_facts() -> dict[str, str]:
    """Return what training depends on here: versions of Flowcast, Python and packages, and a hash of the code."""
    digest = hashlib.sha256()
    for package in ("app", "model"):
        for file in sorted((CODE / package).rglob("*.py")):
            digest.update(f"{file.relative_to(CODE).as_posix()}\n".encode())
            digest.update(file.read_bytes())
    facts = {"flowcast": version("flowcast"), "its code": digest.hexdigest()[:12], "Python": platform.python_version()}
    return facts | {package: version(package) for package in PACKAGES}


def difference(theirs: Mapping[str, str]) -> str:
    """Return the differences of another machine's `code_facts` from these, with both values."""
    ours = code_facts()
    return ", ".join(
        f"{name} is {theirs.get(name, 'missing')} there and {ours[name]} here"
        for name in ours
        if theirs.get(name) != ours[name]
    )


def _check(client: Any) -> None:
    def facts() -> dict[str, str]:  # a nested function is sent as code: the other side may lack the module
        from app.training.cluster import code_facts

        return code_facts()

    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError:
        raise ClusterUnavailable("it has no workers") from None
    try:
        try:
            scheduler: Any = client.run_on_scheduler(facts, callback_timeout=ANSWER_SECONDS)
        except OSError:
            raise
        except Exception as problem:  # it cannot import Flowcast
            scheduler = problem
        workers = client.run(facts, on_error="return", callback_timeout=ANSWER_SECONDS)
    except OSError as problem:  # a TimeoutError is one, too
        raise ClusterUnavailable(f"it does not answer: {one_line(problem)}") from None
    answers = {"the scheduler": scheduler}
    # A worker that left meanwhile answers with an OSError.
    answers |= {
        f"the Dask worker {name}": answer for name, answer in workers.items() if not isinstance(answer, OSError)
    }
    if len(answers) < 2:
        raise ClusterUnavailable("its workers do not answer")
    for name, answer in answers.items():
        if isinstance(answer, BaseException):
            raise ClusterUnavailable(f"{name} cannot run Flowcast: {one_line(answer)}")
        if other := difference(answer):
            raise ClusterUnavailable(f"{name} has another Flowcast: {other}")
