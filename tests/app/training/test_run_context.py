"""A run shows how far its stage is, also while links learn together."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from app.core.database import writing
from app.training.queries import claim_run
from app.training.run_context import RunContext
from app.training.tables import RetrainRun
from tests.support.waiting import wait_until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def run_id(client, put_link):
    put_link("A", zone="UTC")
    put_link("B", zone="UTC")
    return client.post("/v1/admin/retrain", json={"links": "all"}).json()["run_id"]


def shown(client, run_id: int) -> dict:
    run = client.get(f"/v1/admin/retrain/{run_id}").json()
    listed = {one["run_id"]: one for one in client.get("/v1/admin/retrain").json()["runs"]}
    assert run["stage"] == listed[run_id]["stage"]
    return run


def stage_of(client, run_id: int) -> tuple[str, float] | None:
    stage = client.get(f"/v1/admin/retrain/{run_id}").json()["stage"]
    return stage and (stage["name"], stage["share"])


def test_the_default_is_best_and_a_queued_run_has_no_stage(client, run_id):
    run = shown(client, run_id)
    assert (run["algorithm"], run["state"], run["stage"]) == ("best", "queued", None)


@pytest.mark.journey
def test_a_heartbeat_stores_the_stage_and_its_share(client, settings, run_id):
    engine = client.app.state.engine
    with writing(engine) as session:
        run = claim_run(session, "worker", datetime.now(UTC))
    with RunContext(engine, settings, run, "worker", threading.Event()) as context:
        context.enter_stage("network", lambda: 0.25)
        wait_until(lambda: stage_of(client, run_id) == ("network", 0.25))
        context.enter_stage("links")
        wait_until(lambda: stage_of(client, run_id) == ("links", 0.0))
    with writing(engine) as session:
        session.get_one(RetrainRun, run_id).state = "succeeded"
    assert shown(client, run_id)["stage"] is None


def test_the_rest_is_estimated_from_the_share_and_the_time_it_took(client, run_id):
    with writing(client.app.state.engine) as session:
        run = session.get_one(RetrainRun, run_id)
        run.state, run.worker, run.stage, run.stage_share = "running", "worker", "network", 0.25
        run.stage_started_at, run.heartbeat_at = NOW, NOW + timedelta(seconds=61)
    assert shown(client, run_id)["stage"] == {"name": "network", "share": 0.25, "estimated_seconds_left": 185}
    with writing(client.app.state.engine) as session:
        session.get_one(RetrainRun, run_id).stage_share = 0.0
    assert shown(client, run_id)["stage"]["estimated_seconds_left"] is None
