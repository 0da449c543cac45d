"""A link and artifacts of its trained models."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.database import open_database, writing
from app.links.queries import LinkInfo, link_or_404
from app.links.tables import Link
from app.registry.folder_store import FolderStore
from tests.app.registry.artifacts import city_series, retold, trained


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model of link Ba."""
    return trained(tmp_path_factory.mktemp("artifacts"), city_series(1)[0])


@pytest.fixture(scope="session")
def second_artifact(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one, of the same link."""
    return retold(artifact, tmp_path_factory.mktemp("second") / "Ba", gaps=1)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield opened
    opened.dispose()


def add_link(engine: Engine, link_id: str = "Ba", **values: Any) -> LinkInfo:
    now = datetime.now(UTC)
    given = {"name": link_id, "zone": "Europe/Berlin", "slot_minutes": 15} | values
    with writing(engine) as session:
        session.add(Link(link_id=link_id, created_at=now, updated_at=now, **given))
        session.flush()
        return link_or_404(session, link_id)


@pytest.fixture
def link(engine: Engine) -> LinkInfo:
    return add_link(engine)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "models")
