"""A service with a database of its own for every test, on SQLite and on a real PostgreSQL."""

import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.demo.city import City
from app.settings import Settings
from tests.support.city import SLOTS, TRAINED_DAYS, post, put_city, register_models, rows, small_city, train_city
from tests.support.city_databases import FilledDatabases
from tests.support.experts import TrainedExperts, fill_with_experts, train_experts
from tests.support.services import ADMIN_KEY

# A test process imports 370,000 objects, which stay. Looking through them again and again took a tenth of its time.
gc.set_threshold(20_000)  # as in a process that serves


def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection, during tests and at the end of the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Return settings of a service on the feed clock."""
    return Settings(
        database_url=database_url,
        model_store=tmp_path / "models",
        clock="feed",
        admin_key=ADMIN_KEY,
        admin_key_file=tmp_path / "admin.key",
    )


@pytest.fixture
def runtime(settings: Settings) -> Iterator[Any]:
    from app.server.resources import open_resources

    opened = open_resources(settings)
    yield opened
    opened.close()


@pytest.fixture
def service(settings: Settings) -> FastAPI:
    from app.main import create_app

    return create_app(settings)


@pytest.fixture
def client(service: FastAPI) -> Iterator[TestClient]:
    """Yield a client with an admin key."""
    with TestClient(service, headers={"X-API-Key": ADMIN_KEY}) as client:
        yield client


@pytest.fixture(scope="module")
def shared_client(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Yield a client of a service on SQLite for requests that are refused and store nothing."""
    from app.main import create_app

    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(sqlite_template, folder / "flowcast.db")
    settings = Settings(
        database_url=f"sqlite:///{folder}/flowcast.db",
        model_store=folder / "models",
        clock="feed",
        admin_key=ADMIN_KEY,
        webhook_hosts="hooks.example",
    )
    with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as client:
        yield client


@pytest.fixture
def put_link(client: TestClient) -> Callable[..., dict[str, Any]]:
    """Store a link, in UTC by default, and return the service's representation of it."""

    def put(link_id: str = "A", **fields: Any) -> dict[str, Any]:
        answer = client.put(f"/v1/links/{link_id}", json={"zone": "UTC"} | fields)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    return put


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[City, Path]:
    """Return a small city, and a folder with a trained model of each link."""
    city, folder = small_city(), tmp_path_factory.mktemp("trained")
    train_city(city, folder)
    return city, folder


@pytest.fixture(scope="session")
def city_databases(
    trained: tuple[City, Path], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> FilledDatabases:
    """Return databases with the city's links, fifteen days of counts, active models and forecasts."""
    city, models = trained

    def fill(client: TestClient) -> None:
        put_city(client, city)
        register_models(client, models, list(city.counts))
        post(client, rows(city, 0, TRAINED_DAYS * SLOTS))

    return FilledDatabases(request, tmp_path_factory.mktemp("city"), fill)


@pytest.fixture(scope="session")
def trained_experts(tmp_path_factory: pytest.TempPathFactory) -> TrainedExperts:
    """Return a small city with the trained experts of each link."""
    return train_experts(tmp_path_factory.mktemp("experts"))


@pytest.fixture(scope="session")
def expert_databases(
    trained_experts: TrainedExperts, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> FilledDatabases:
    """Return databases with the city's links, fifteen days of counts, active experts and forecasts."""

    def fill(client: TestClient) -> None:
        fill_with_experts(client, trained_experts)

    return FilledDatabases(request, tmp_path_factory.mktemp("expert-city"), fill)


@pytest.fixture
def stored_city(trained: tuple[City, Path]) -> City:
    """Return the city that is in the database when the service opens it."""
    return trained[0]


@pytest.fixture
def database_url(database_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, or of one with the city if the test uses it."""
    if "stored_city" not in request.fixturenames:
        return database_url
    kind = database_url.partition(":")[0]
    databases: FilledDatabases = request.getfixturevalue("city_databases")
    return str(request.getfixturevalue("new_database")(kind, databases.copied(kind, tmp_path / "models")))


@pytest.fixture
def city(stored_city: City, client: TestClient) -> City:
    """Return the city in the service, with fifteen days of counts and active models."""
    return stored_city
