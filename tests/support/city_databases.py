"""Databases that are filled once by a service and copied for each test, which takes a tenth of the time."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from tests.support.databases import create_database
from tests.support.services import ADMIN_KEY


class FilledDatabases:
    """One database of each kind, filled by a client on first use."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, fill: Callable[[TestClient], None]) -> None:
        self._request, self._folder, self._fill = request, folder, fill
        self._made: dict[str, str] = {}

    def copied(self, kind: str, models: Path) -> str:
        """Copy the trained models into a folder; return the database's file or name, to copy it from."""
        if kind not in self._made:
            self._made[kind] = self._filled(kind)
        shutil.copytree(self._folder / kind, models)
        return self._made[kind]

    def _filled(self, kind: str) -> str:
        if kind == "sqlite":
            template = self._request.getfixturevalue("sqlite_template")
            made = str(shutil.copy(template, self._folder / "flowcast.db"))
            url = f"sqlite:///{made}"
        else:
            made = f"filled_{uuid.uuid4().hex}"
            url = create_database(self._request.getfixturevalue("postgresql"), made, "template")
        settings = Settings(database_url=url, model_store=self._folder / kind, clock="feed", admin_key=ADMIN_KEY)
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as client:
            self._fill(client)
        return made
