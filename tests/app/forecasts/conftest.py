from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.demo.city import City
from tests.app.city import SLOTS, TRAINED_DAYS, post, put_city, rows, shelve_models, small_city, train_city


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[City, Path]:
    """A small city, and a folder with a trained model of each link."""
    city, folder = small_city(), tmp_path_factory.mktemp("trained")
    train_city(city, folder)
    return city, folder


@pytest.fixture
def city(trained: tuple[City, Path], client: TestClient) -> City:
    """The city in the service, with fifteen days of counts and active models."""
    city, folder = trained
    put_city(client, city)
    shelve_models(client, folder, list(city.counts))
    post(client, rows(city, 0, TRAINED_DAYS * SLOTS))
    return city
