"""Fixtures shared by all tests."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# scikit-learn's conformance suite skips its array-API checks unless SciPy was imported with this set.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Tests run on every core at once: more threads in each would only wait for one another, for minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

from benchmarks.browser import NoBrowser, chromium
from benchmarks.data import MissingData, data_directory, running_in_ci
from tests.databases import RUN, database_url, postgresql, remove_servers, sqlite_template

__all__ = ["database_url", "postgresql", "sqlite_template"]  # one server for all tests of a process

LONG = (
    "tests/journeys/",
    "tests/test_readme_examples.py",
    "tests/app/demo/test_replay.py",
    "tests/app/test_openapi.py",
    "tests/app/test_train.py",
    "tests/benchmarks/test_faults.py",
    "tests/model/test_memory.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Name the run, before its workers start, and let Ctrl-C reach what tests start."""
    # A shell starts what it puts into the background with Ctrl-C ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = uuid.uuid4().hex[:12]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every process begin with its share of the long tests: at the end, they would leave the others idle.

    Each gets an equal part of the list in turn, and what it has not come to is taken over by those who are done. A
    module's tests stay together, for they share what they start.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.nodeid.startswith(LONG):
            long.setdefault(item.nodeid.split("::")[0], []).append(item)
    shares = [[item for module in list(long.values())[i::processes] for item in module] for i in range(processes)]
    rest = [item for item in items if not item.nodeid.startswith(LONG)]
    ordered: list[pytest.Item] = []
    for i, share in enumerate(shares):
        n = len(items) * (i + 1) // processes - len(ordered) - len(share)
        ordered += share + rest[: max(0, n)]
        rest = rest[max(0, n) :]
    items[:] = ordered + rest


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop and remove the servers of workers that ended too early to do it themselves."""
    if not hasattr(config, "workerinput"):
        remove_servers()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20021225)


def data_or_skip(name: str) -> Path:
    """A folder of data that is no part of the project; absent, a test skips on a laptop and fails in CI."""
    try:
        return data_directory(name)
    except MissingData as absent:
        if running_in_ci():
            pytest.fail(str(absent))
        pytest.skip(str(absent))


@pytest.fixture(scope="session")
def regression_data() -> Path:
    """The folder with the paper's regression sets."""
    return data_or_skip("regression")


@pytest.fixture(scope="session")
def real_file() -> Path:
    """Real counts: the SCATS survey file."""
    return data_or_skip("traffic") / "scats_2006-10.csv.gz"


# A module's browser ends with the module: while it runs, its event loop would be in the way of other tests' own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium; absent, a test skips on a laptop and fails in CI."""
    try:
        with chromium() as running:
            yield running
    except NoBrowser as absent:
        if running_in_ci():
            pytest.fail(str(absent))
        pytest.skip(str(absent))
