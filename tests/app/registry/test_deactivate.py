"""A model that proves bad is withdrawn: the link goes back to its profile."""

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from tests.support.city import SLOTS, TRAINED_DAYS, post, rows
from tests.support.services import ADMIN_KEY
from tests.support.waiting import wait_until

WITHDRAWN = "the link's trained model was withdrawn"


@pytest.fixture
def link_id(city):
    return sorted(city.counts)[0]


def forecast(client, link_id: str) -> dict:
    (one,) = client.get(f"/v1/links/{link_id}/forecast").json()["forecasts"]
    return one


def withdraw(client, link_id: str, status: int = 200, **body) -> dict:
    answer = client.post(f"/v1/admin/links/{link_id}/models/deactivate", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_profile_forecasts_with_the_reason_until_an_activation(client, city, link_id):
    assert forecast(client, link_id)["method"] == "KR_SML"
    done = withdraw(client, link_id, reason="it forecasts nonsense")
    assert (done["version"], done["previous_version"]) == (None, 1)
    assert (done["activated_by"], done["reason"]) == ("environment", "it forecasts nonsense")
    one = forecast(client, link_id)
    assert (one["method"], one["degraded_reason"], one["model_version"]) == ("profile", WITHDRAWN, None)
    models = client.get(f"/v1/links/{link_id}/models").json()
    assert (models["choice"], [model["state"] for model in models["models"]]) == ("withdrawn", ["retired"])
    n = TRAINED_DAYS * SLOTS
    post(client, rows(city, n, n + 1, [link_id]))
    assert forecast(client, link_id)["degraded_reason"] == WITHDRAWN

    assert client.post(f"/v1/admin/links/{link_id}/models/1/activate").json()["version"] == 1
    one = forecast(client, link_id)
    assert (one["method"], one["degraded_reason"]) == ("KR_SML", None)
    assert client.get(f"/v1/links/{link_id}/models").json()["choice"] is None
    history = client.get(f"/v1/admin/links/{link_id}/activations").json()["activations"]
    assert [(one["version"], one["previous_version"]) for one in history] == [(1, None), (None, 1), (1, None)]
    calls = client.get("/v1/admin/audit").json()["calls"]
    assert f"/v1/admin/links/{link_id}/models/deactivate" in {call["path"] for call in calls}


def test_without_an_active_model_there_is_nothing_to_withdraw(client, link_id):
    withdraw(client, link_id)
    assert "no active model" in withdraw(client, link_id, 409)["detail"]
    assert withdraw(client, "nowhere", 404)["status"] == 404
    withdraw(client, link_id, 422, reasons="misspelt")


def test_it_needs_the_scope_admin(client, service, link_id):
    made = client.post("/v1/admin/keys", json={"name": "r", "scopes": ["read"]}).json()
    key = {"X-API-Key": made["key"]}
    answer = client.post(f"/v1/admin/links/{link_id}/models/deactivate", headers=key)
    assert answer.status_code == 403
    assert forecast(client, link_id)["method"] == "KR_SML"


def test_every_process_goes_back_to_the_profile(client, settings, link_id):
    with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
        assert forecast(other, link_id)["method"] == "KR_SML"
        withdraw(client, link_id)
        wait_until(lambda: forecast(other, link_id)["degraded_reason"] == WITHDRAWN)
