"""Fixtures shared by all tests, and the marker ``journey``."""

import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# scikit-learn's conformance suite skips its array-API checks unless SciPy was imported with this set.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Tests run on every core at once, and more threads in each would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

from app.settings import Settings, settings_from_environment
from tests.support.browser import NoBrowser, chromium
from tests.support.data import MissingData, data_directory, running_in_ci
from tests.support.databases import RUN, database_url, new_database, postgresql, remove_server, sqlite_template

__all__ = ["database_url", "new_database", "postgresql", "sqlite_template"]

JOURNEYS = Path(__file__).parent / "journeys"
LONG_FIXTURES = {"postgresql", "browser", "city_report"}  # they start a server or compute for seconds
STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind"}  # audit events
running: list[pytest.Item] = []  # the test that runs, if any


def pytest_configure(config: pytest.Config) -> None:
    """Set the id of the run before its workers start, and restore the handler of Ctrl-C."""
    # A shell starts background processes with SIGINT ignored, which the processes of tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(require_journey)
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = uuid.uuid4().hex[:12]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop and remove the PostgreSQL that tests have started."""
    if not hasattr(config, "workerinput"):
        remove_server()


def require_journey(event: str, callspec: Any) -> None:
    """Raise if a test without the marker journey starts a process or a server, because ``make quick`` runs it."""
    if event in STARTS and running and not running[-1].get_closest_marker("journey"):
        raise AssertionError(f"{running[-1].nodeid} starts a process or a server ({event}): mark it journey")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record which test is running."""
    running.append(item)
    try:
        return (yield)
    finally:
        running.pop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, and distribute the long ones over the processes."""
    long = {item.path for item in items if JOURNEYS in item.path.parents or item.get_closest_marker("journey")}
    for item in items:
        callspec = getattr(item, "callspec", None)
        database = None if callspec is None else callspec.params.get("database_url")
        used = LONG_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if JOURNEYS in item.path.parents or used or database == "postgresql":
            item.add_marker(pytest.mark.journey)
    items[:] = distribute(items, long, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def distribute(items: list[pytest.Item], long: set[Path], processes: int) -> list[pytest.Item]:
    """Order tests so that every process begins with its share of the long modules.

    Long modules at the end would leave other processes idle. Each process has an equal part of the list, and idle ones
    take over the rest of others' parts. The tests of a module stay together, because they share fixtures.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.path in long:
            modules.setdefault(item.path, []).append(item)
    shares = [[item for module in list(modules.values())[i::processes] for item in module] for i in range(processes)]
    rest = [item for item in items if item.path not in long]
    ordered: list[pytest.Item] = []
    for i, share in enumerate(shares):
        n = len(items) * (i + 1) // processes - len(ordered) - len(share)
        ordered += share + rest[: max(0, n)]
        rest = rest[max(0, n) :]
    return ordered + rest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20021225)


@pytest.fixture
def fresh_settings() -> Iterator[None]:
    """Clear the cached settings before and after the test."""
    settings_from_environment.cache_clear()
    yield
    settings_from_environment.cache_clear()


def skip_or_fail(problem: object) -> None:
    """Skip a test that needs something that is missing; fail it in CI, where nothing may be skipped."""
    if running_in_ci():
        pytest.fail(str(problem))
    pytest.skip(str(problem))


def data_folder(name: str) -> Path:
    """Return a folder of data that is not part of the project, or skip the test."""
    try:
        return data_directory(name)
    except MissingData as problem:
        skip_or_fail(problem)
        raise


@pytest.fixture(scope="session")
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the service, which takes most of a second to build."""
    from app.main import create_app

    return create_app(Settings()).openapi()


@pytest.fixture(scope="session")
def regression_data() -> Path:
    """Return the folder with the paper's regression sets."""
    return data_folder("regression")


@pytest.fixture(scope="session")
def real_file() -> Path:
    """Return a file of real counts, the SCATS survey."""
    return data_folder("traffic") / "scats_2006-10.csv.gz"


# Closed at the end of a module, because its event loop interferes with those of other tests.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield the system's Chromium."""
    try:
        with chromium() as running:
            yield running
    except NoBrowser as problem:
        skip_or_fail(problem)
