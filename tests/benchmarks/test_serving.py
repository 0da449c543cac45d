"""The empty route that forecasts are compared with checks keys as the service does."""

import pytest
from starlette.testclient import TestClient

from benchmarks.empty_service import BODY_BYTES, create_empty_app
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY


@on_sqlite
@pytest.mark.usefixtures("fresh_settings")
def test_the_empty_route_answers_right_keys_alone(database_url, tmp_path, monkeypatch):
    variables = {"FLOWCAST_DATABASE_URL": database_url, "FLOWCAST_ADMIN_KEY": ADMIN_KEY, BODY_BYTES: "500"}
    for name, value in (variables | {"FLOWCAST_MODEL_STORE": str(tmp_path / "models")}).items():
        monkeypatch.setenv(name, value)
    with TestClient(create_empty_app(), raise_server_exceptions=False) as client:
        answer = client.get("/v1/empty", headers={"X-API-Key": ADMIN_KEY})
        assert (answer.status_code, len(answer.content)) == (200, 500)
        assert (
            client.get("/v1/empty", headers={"X-API-Key": "another"}).status_code == 500
        )  # no handler of problems here
