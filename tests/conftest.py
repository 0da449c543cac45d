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

# Tests run on every core at once: more threads in each would only wait for one another, for minutes.
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
    """Name the run, before its workers start, and let Ctrl-C reach what tests start."""
    # A shell starts what it puts into the background with Ctrl-C ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(require_journey)
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = uuid.uuid4().hex[:12]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop and remove the PostgreSQL that tests have started."""
    if not hasattr(config, "workerinput"):
        remove_server()


def require_journey(event: str, given: Any) -> None:
    """Fail a test that starts a process or a server and is not marked as a journey: ``make quick`` runs it."""
    if event in STARTS and running and not running[-1].get_closest_marker("journey"):
        raise AssertionError(f"{running[-1].nodeid} starts a process or a server ({event}): mark it journey")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note which test runs, with its fixtures."""
    running.append(item)
    try:
        return (yield)
    finally:
        running.pop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, and deal out the long ones among the processes."""
    long = {item.path for item in items if JOURNEYS in item.path.parents or item.get_closest_marker("journey")}
    for item in items:
        given = getattr(item, "callspec", None)
        database = None if given is None else given.params.get("database_url")
        used = LONG_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if JOURNEYS in item.path.parents or used or database == "postgresql":
            item.add_marker(pytest.mark.journey)
    items[:] = dealt_out(items, long, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def dealt_out(items: list[pytest.Item], long: set[Path], processes: int) -> list[pytest.Item]:
    """Let every process begin with its share of the long modules: at the end, they would leave the others idle.

    Each gets an equal part of the list in turn, and what it has not come to is taken over by those who are done. A
    module's tests stay together, because they share what they start.
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
    """Read the settings from the environment anew, during the test and after it."""
    settings_from_environment.cache_clear()
    yield
    settings_from_environment.cache_clear()


def absent(problem: object) -> None:
    """Skip a test for which something is not installed or not there; in CI, where nothing is skipped, fail it."""
    if running_in_ci():
        pytest.fail(str(problem))
    pytest.skip(str(problem))


def data_or_skip(name: str) -> Path:
    """Return a folder of data that is no part of the project."""
    try:
        return data_directory(name)
    except MissingData as problem:
        absent(problem)
        raise


@pytest.fixture(scope="session")
def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of the service; it takes most of a second to make."""
    from app.main import create_app

    return create_app(Settings()).openapi()


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
    """The system's Chromium."""
    try:
        with chromium() as running:
            yield running
    except NoBrowser as problem:
        absent(problem)
