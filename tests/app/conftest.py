"""A service with a database of its own for every test, on SQLite and on a real PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.settings import Settings

ADMIN_KEY = "an-admin-key-for-tests-only"

# For tests of what is refused before a database is asked: a second one would add time and nothing else.
on_one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of a service whose now is the end of the newest slot seen."""
    return Settings(
        database_url=database_url,
        model_store=tmp_path / "models",
        clock="feed",
        admin_key=ADMIN_KEY,
        admin_key_file=tmp_path / "admin.key",
    )


@pytest.fixture
def runtime(settings: Settings) -> Iterator[Any]:
    from app.runtime import open_runtime

    opened = open_runtime(settings)
    yield opened
    opened.close()


@pytest.fixture
def service(settings: Settings) -> FastAPI:
    from app.main import create_app

    return create_app(settings)


@pytest.fixture
def client(service: FastAPI) -> Iterator[TestClient]:
    """A client with a key for everything."""
    with TestClient(service, headers={"X-API-Key": ADMIN_KEY}) as client:
        yield client


@pytest.fixture
def put_link(client: TestClient) -> Callable[..., dict[str, Any]]:
    """Store a link and give it as the service does."""

    def put(link_id: str = "A", **fields: Any) -> dict[str, Any]:
        answer = client.put(f"/v1/links/{link_id}", json=fields)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    return put
