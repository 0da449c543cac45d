"""Trained models over REST."""

from pathlib import Path

import pytest

from app.core.database import writing
from app.links.queries import link_or_404
from app.registry.activate import activate
from app.registry.register import register_model
from app.registry.store import ModelStore
from model.artifacts.link_models import load_model
from tests.support.databases import on_sqlite


@pytest.fixture
def registered(client, put_link, artifact, second_artifact):
    """Register two versions of link Ba, the first of them active, and return the store."""
    put_link("Ba", zone="Europe/Berlin")
    runtime = client.app.state
    store = ModelStore(runtime.settings.model_store)
    with writing(runtime.engine) as session:
        link = link_or_404(session, "Ba")
        for folder in (artifact, second_artifact):
            register_model(session, store, link, folder)
        activate(session, store, link, 1)
    return store


class TestGetModels:
    def test_the_newest_comes_first_with_its_figures(self, client, registered, artifact):
        shown = client.get("/v1/links/Ba/models").json()
        _, about = load_model(artifact)
        assert (shown["link_id"], shown["next_cursor"]) == ("Ba", None)
        assert [(model["version"], model["state"]) for model in shown["models"]] == [(2, "candidate"), (1, "active")]
        one = shown["models"][1]
        assert (one["algorithm"], one["parameters"], one["damaged"]) == ("KR", about["plan"], None)
        assert one["held_out"]["candidate"]["rmse"] == about["held_out"]["candidate"]["rmse"]["value"]
        assert one["held_out"]["profile"]["mare"] == about["held_out"]["profile"]["mare"]["value"]
        assert one["trained_from"] == "2025-08-31T22:00:00Z"
        assert one["activated_at"] is not None
        assert one["retired_at"] is None

    def test_page_by_page(self, client, registered):
        first = client.get("/v1/links/Ba/models?limit=1")
        assert [model["version"] for model in first.json()["models"]] == [2]
        assert 'rel="next"' in first.headers["link"]
        second = client.get("/v1/links/Ba/models", params={"limit": 1, "cursor": first.json()["next_cursor"]}).json()
        assert [model["version"] for model in second["models"]] == [1]
        assert second["next_cursor"] is None

    def test_a_link_without_models_has_an_empty_list(self, client, put_link):
        put_link("A")
        empty = {"link_id": "A", "choice": None, "models": [], "next_cursor": None}
        assert client.get("/v1/links/A/models").json() == empty

    @pytest.mark.parametrize("query", ["limit=0", "limit=1001", "cursor=0", "cursor=x", "cursor=-1"])
    @on_sqlite
    def test_bad_pages_are_refused(self, client, registered, query):
        assert client.get(f"/v1/links/Ba/models?{query}").status_code == 422


class TestGetModel:
    @on_sqlite
    def test_findings_and_the_lags_that_matter_are_shown(self, client, registered, artifact):
        shown = client.get("/v1/links/Ba/models/1").json()
        _, about = load_model(artifact)
        for name in ("verdicts", "gaps", "suspect", "mu", "n_iter", "data_fingerprint"):
            assert shown[name] == about[name]
        assert sorted(lag["lag"] for lag in shown["lag_weights"]) == list(range(1, 13))
        assert sum(lag["weight"] for lag in shown["lag_weights"]) == pytest.approx(1, abs=1e-4)
        assert shown["damaged"] is None

    @on_sqlite
    def test_what_is_wrong_with_an_artifact_is_shown(self, client, registered):
        Path(registered.path("Ba/2"), "memory.npy").write_bytes(b"")
        shown = client.get("/v1/links/Ba/models/2").json()
        assert "memory.npy has 0 bytes" in shown["damaged"]
        assert shown["lag_weights"] is None
        listed = client.get("/v1/links/Ba/models").json()["models"]
        assert "memory.npy has 0 bytes" in listed[0]["damaged"]
        assert listed[1]["damaged"] is None

    @on_sqlite
    def test_what_does_not_exist(self, client, registered):
        statuses = {
            "/v1/links/Zz/models": 404,
            "/v1/links/Zz/models/1": 404,
            "/v1/links/Ba/models/3": 404,
            "/v1/links/Ba/models/0": 422,
            "/v1/links/Ba/models/2147483648": 422,
            "/v1/links/Ba/models/one": 422,
        }
        answers = {path: client.get(path) for path in statuses}
        assert {path: answer.status_code for path, answer in answers.items()} == statuses
        assert {answer.headers["content-type"] for answer in answers.values()} == {"application/problem+json"}

    @on_sqlite
    def test_a_key_is_needed(self, client, registered):
        assert client.get("/v1/links/Ba/models", headers={"X-API-Key": ""}).status_code == 401
