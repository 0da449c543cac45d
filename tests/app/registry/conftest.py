"""A link and artifacts of its trained models."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.core.database import open_database
from app.links.queries import LinkInfo
from app.registry.store import ModelStore
from tests.support.artifacts import city_series, copy_with_about, trained
from tests.support.stored import add_link


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trained model of link Ba."""
    return trained(tmp_path_factory.mktemp("artifacts"), city_series(1)[0])


@pytest.fixture(scope="session")
def second_artifact(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another model of the same link."""
    return copy_with_about(artifact, tmp_path_factory.mktemp("second") / "Ba", gaps=1)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield opened
    opened.dispose()


@pytest.fixture
def link(engine: Engine) -> LinkInfo:
    return add_link(engine)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")
